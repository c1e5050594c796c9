//! Settings of the notifications.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_model::{JobId, Severity};
use serde::{Serialize, Serializer};

use crate::alarms::AlarmLimits;
use crate::quiet::{MaintenanceWindow, QuietHours};

/// Endpoint of PagerDuty's Events API v2.
pub const PAGERDUTY_URL: &str = "https://events.pagerduty.com/v2/enqueue";

/// Settings of all receivers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotifySettings {
    /// Receivers; none disables notifications.
    pub receivers: Vec<ReceiverSettings>,
    /// Name of the cluster in messages and keys; empty: that of the identity, else `rankguard`.
    pub cluster: String,
    pub alarms: AlarmLimits,
}

/// Kinds of receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiverKind {
    /// JSON documents of Rankguard's own schema.
    Webhook,
    /// Incoming webhook of Slack, or of a program that takes the same.
    Slack,
    /// Prometheus Alertmanager, API v2.
    Alertmanager,
    /// PagerDuty, Events API v2.
    Pagerduty,
    /// E-mail by SMTP.
    Email,
}

impl ReceiverKind {
    /// All kinds with their names in the configuration.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("webhook", Self::Webhook),
        ("slack", Self::Slack),
        ("alertmanager", Self::Alertmanager),
        ("pagerduty", Self::Pagerduty),
        ("email", Self::Email),
    ];

    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::Alertmanager => "alertmanager",
            Self::Pagerduty => "pagerduty",
            Self::Email => "email",
        }
    }

    /// Returns true if the receiver holds incidents until they are reported as ended.
    pub fn holds_incidents(self) -> bool {
        matches!(self, Self::Alertmanager | Self::Pagerduty)
    }
}

/// URL of a receiver. Its path may be a secret, so that only the origin is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceiverUrl(reqwest::Url);

impl ReceiverUrl {
    /// Parses the URL of a receiver of this kind: http or https, for e-mail smtp or smtps; with a host and without a user.
    pub fn parse(kind: ReceiverKind, text: &str) -> Result<Self, String> {
        let (schemes, wanted) = match kind {
            ReceiverKind::Email => (["smtp", "smtps"], "expected a URL such as smtps://host"),
            _ => (
                ["http", "https"],
                "expected a URL such as https://host/path, without a user",
            ),
        };
        let url = reqwest::Url::parse(text.trim()).map_err(|problem| format!("{problem}; {wanted}"))?;
        let is_known = schemes.contains(&url.scheme()) && url.host().is_some();
        if !is_known || !url.username().is_empty() || url.password().is_some() {
            return Err(wanted.to_owned());
        }
        Ok(Self(url))
    }

    /// Returns the URL with its path.
    pub(crate) fn reveal(&self) -> reqwest::Url {
        self.0.clone()
    }
}

impl fmt::Display for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ReceiverUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Settings of one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReceiverSettings {
    /// Name, of letters, digits, `-` and `_`.
    pub name: String,
    pub kind: ReceiverKind,
    /// URL; absent if it is in `url_file`.
    pub url: Option<ReceiverUrl>,
    /// File with the URL, for URLs that are secrets.
    pub url_file: Option<PathBuf>,
    /// File with the secret: key of the signature for a webhook, bearer token for Alertmanager, routing key for
    /// PagerDuty, password for e-mail.
    pub secret_file: Option<PathBuf>,
    /// Sender of an e-mail.
    pub from: Option<String>,
    /// Mailboxes of an e-mail.
    pub to: Vec<String>,
    /// User at the mail server; the secret is the password.
    pub user: Option<String>,
    /// Certificates (PEM) of the authorities of an https URL; absent: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Least severity that is sent.
    pub min_severity: Severity,
    /// Names of jobs, with `*` at the end for a prefix; empty: all, and incidents without a job.
    pub jobs: Vec<String>,
    /// True if drills are sent, marked as such.
    pub drills: bool,
    /// Wait for the verdict of a new case before its first message, seconds.
    pub wait_s: u64,
    /// Messages within `limit_window_s`; further ones are counted.
    pub limit: usize,
    /// Window of `limit`, seconds.
    pub limit_window_s: u64,
    pub quiet_hours: Vec<QuietHours>,
    pub maintenance: Vec<MaintenanceWindow>,
    /// Severities that are sent during quiet hours and maintenance, too.
    pub quiet_except: Vec<Severity>,
}

impl ReceiverSettings {
    /// Returns the defaults of a receiver.
    pub fn new(name: &str, kind: ReceiverKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            url: None,
            url_file: None,
            secret_file: None,
            from: None,
            to: Vec::new(),
            user: None,
            ca_file: None,
            min_severity: Severity::Warning,
            jobs: Vec::new(),
            drills: true,
            wait_s: 10,
            limit: 30,
            limit_window_s: 600,
            quiet_hours: Vec::new(),
            maintenance: Vec::new(),
            quiet_except: Vec::new(),
        }
    }

    /// Returns true if incidents of a job are sent; `None` is an incident without a job.
    pub(crate) fn selects_job(&self, job: Option<&JobId>) -> bool {
        let Some(job) = job else {
            return self.jobs.is_empty();
        };
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => job.as_str().starts_with(prefix),
            None => job.as_str() == pattern,
        };
        self.jobs.is_empty() || self.jobs.iter().any(fits)
    }

    pub(crate) fn limit_window(&self) -> Duration {
        Duration::from_secs(self.limit_window_s)
    }
}
