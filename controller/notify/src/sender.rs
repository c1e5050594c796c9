//! Sender: turns messages into requests of the receiver's kind. Secrets are read for each request, so that a changed
//! file needs no restart.

use std::path::Path;

use rankguard_model::Timestamp;
use rankguard_web_client::{WebClient, WebClientError};
use reqwest::Url;

use crate::client::{self, DeliveryError, OutgoingRequest};
use crate::format::alertmanager::PostedAlert;
use crate::format::{OutgoingMessage, pagerduty, slack, webhook};
use crate::incident::{Incident, NoticeKind};
use crate::ledger::DueMessage;
use crate::mail;
use crate::settings::{PAGERDUTY_URL, ReceiverKind, ReceiverSettings, ReceiverUrl};

/// Largest secret or URL file, bytes.
const SECRET_BYTES_MAX: u64 = 8 << 10;
/// Path of Alertmanager's API below its URL.
const ALERTS_PATH: &str = "api/v2/alerts";

/// Sender to one receiver.
#[derive(Debug)]
pub struct MessageSender {
    settings: ReceiverSettings,
    cluster: String,
    client: WebClient,
}

impl MessageSender {
    /// Makes a sender; reads the authorities.
    pub fn new(settings: ReceiverSettings, cluster: &str) -> Result<Self, WebClientError> {
        let client = client::client(settings.ca_file.as_deref())?;
        Ok(Self {
            settings,
            cluster: cluster.to_owned(),
            client,
        })
    }

    pub(crate) fn settings(&self) -> &ReceiverSettings {
        &self.settings
    }

    /// Sends a test message, and its end to a receiver that holds incidents.
    pub async fn test(&self, now: Timestamp) -> Result<(), DeliveryError> {
        let title = format!(
            "test message for receiver {}; no failure has occurred",
            self.settings.name
        );
        let mut incident = Incident::notice(NoticeKind::Test, title, Vec::new(), now);
        incident.command = "rankguard config show".to_owned();
        let message = |incident: &Incident, event| DueMessage {
            event,
            incident: incident.clone(),
            summarizes: 0,
        };
        if self.settings.kind == ReceiverKind::Alertmanager {
            self.post_alerts(&[PostedAlert::firing(&self.cluster, &incident, now)])
                .await?;
            return self
                .post_alerts(&[PostedAlert::resolved(&self.cluster, &incident, now)])
                .await;
        }
        self.send(&message(&incident, "test"), now).await?;
        if self.settings.kind.holds_incidents() {
            self.send(&message(&incident.cleared(now), "test"), now).await?;
        }
        Ok(())
    }

    /// Sends one message.
    pub(crate) async fn send(&self, message: &DueMessage, now: Timestamp) -> Result<(), DeliveryError> {
        let outgoing = OutgoingMessage {
            cluster: &self.cluster,
            event: message.event,
            incident: &message.incident,
            sent_at: now,
        };
        let secret = self.secret()?;
        if self.settings.kind == ReceiverKind::Email {
            return mail::send(&self.settings, &self.url()?, secret, &outgoing).await;
        }
        let made = match self.settings.kind {
            ReceiverKind::Webhook | ReceiverKind::Alertmanager | ReceiverKind::Email => webhook::body(&outgoing),
            ReceiverKind::Slack => slack::body(&outgoing),
            ReceiverKind::Pagerduty => pagerduty::body(&outgoing, secret.as_deref().unwrap_or_default()),
        };
        let body = made.map_err(|problem| DeliveryError::Refused(format!("cannot make the message: {problem}")))?;
        let is_signed = self.settings.kind == ReceiverKind::Webhook;
        let signature = secret
            .filter(|_| is_signed)
            .map(|secret| webhook::signature(&secret, &body));
        let request = OutgoingRequest {
            url: self.url()?,
            body,
            signature,
            bearer: None,
        };
        client::send(&self.client, request).await
    }

    /// Posts alerts to Alertmanager.
    pub(crate) async fn post_alerts(&self, alerts: &[PostedAlert]) -> Result<(), DeliveryError> {
        let made = serde_json::to_vec(alerts);
        let body = made.map_err(|problem| DeliveryError::Refused(format!("cannot make the alerts: {problem}")))?;
        let mut url = self.url()?;
        if !url.path().ends_with(ALERTS_PATH) {
            let path = format!("{}/{ALERTS_PATH}", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        let request = OutgoingRequest {
            url,
            body,
            signature: None,
            bearer: self.secret()?,
        };
        client::send(&self.client, request).await
    }

    fn url(&self) -> Result<Url, DeliveryError> {
        if let Some(path) = &self.settings.url_file {
            let text = read_secret(path).map_err(DeliveryError::failed)?;
            let url = ReceiverUrl::parse(self.settings.kind, &text);
            let url = url.map_err(|problem| DeliveryError::failed(format!("{}: {problem}", path.display())))?;
            return Ok(url.reveal());
        }
        if let Some(url) = &self.settings.url {
            return Ok(url.reveal());
        }
        let default = ReceiverUrl::parse(ReceiverKind::Pagerduty, PAGERDUTY_URL).map_err(DeliveryError::failed)?;
        Ok(default.reveal())
    }

    fn secret(&self) -> Result<Option<String>, DeliveryError> {
        let path = self.settings.secret_file.as_deref();
        path.map(read_secret).transpose().map_err(DeliveryError::failed)
    }
}

/// Reads a secret: the text of a file without white space around it.
pub fn read_secret(path: &Path) -> Result<String, String> {
    let text = rankguard_files::read_text(path, SECRET_BYTES_MAX);
    let text = text.map_err(|problem| format!("cannot read {}: {problem}", path.display()))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("{} is empty", path.display()));
    }
    Ok(text.to_owned())
}
