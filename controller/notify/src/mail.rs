//! E-mail by SMTP: the messages of an incident refer to one message id, so that mail programs show them as one thread.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::AsyncSmtpTransportBuilder;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use reqwest::Url;

use crate::client::DeliveryError;
use crate::format::OutgoingMessage;
use crate::settings::ReceiverSettings;

/// Time limit of one command, and of a whole delivery.
const COMMAND_DEADLINE: Duration = Duration::from_secs(10);
const DELIVERY_DEADLINE: Duration = Duration::from_secs(30);
/// Right side of message ids.
const ID_DOMAIN: &str = "rankguard.invalid";
/// Permanent answers about the client, not the message: authentication, and encryption that is required.
const ABOUT_CLIENT: [u16; 4] = [530, 534, 535, 538];

/// Checks an address such as `Ada <ada@example.com>`.
pub fn check_mailbox(text: &str) -> Result<(), String> {
    let parsed: Result<Mailbox, _> = text.parse();
    parsed
        .map(drop)
        .map_err(|problem| format!("{text:?} is no mail address: {problem}"))
}

/// Sends a message; `password` belongs to `settings.user`.
pub(crate) async fn send(
    settings: &ReceiverSettings,
    url: &Url,
    password: Option<String>,
    outgoing: &OutgoingMessage<'_>,
) -> Result<(), DeliveryError> {
    let message = message(settings, outgoing).map_err(DeliveryError::Refused)?;
    let mut builder = transport(url, settings)?;
    if let (Some(user), Some(password)) = (settings.user.clone(), password) {
        builder = builder.credentials(Credentials::new(user, password));
    }
    let transport: AsyncSmtpTransport<Tokio1Executor> = builder.timeout(Some(COMMAND_DEADLINE)).build();
    let sent = tokio::time::timeout(DELIVERY_DEADLINE, transport.send(message)).await;
    let sent = sent.map_err(|_| DeliveryError::failed(format!("no end within {} s", DELIVERY_DEADLINE.as_secs())))?;
    sent.map(drop).map_err(|problem| {
        let text = rankguard_model::with_causes(&problem);
        let is_about_client = problem.status().is_some_and(|code| ABOUT_CLIENT.contains(&code.into()));
        if problem.is_permanent() && !is_about_client {
            DeliveryError::Refused(text)
        } else {
            DeliveryError::failed(text)
        }
    })
}

/// Makes the transport: `smtps` is TLS from the beginning; `smtp` uses STARTTLS if the server offers it, and requires it
/// if there is a user.
fn transport(url: &Url, settings: &ReceiverSettings) -> Result<AsyncSmtpTransportBuilder, DeliveryError> {
    let host = url.host_str().unwrap_or_default();
    let mut parameters = TlsParameters::builder(host.to_owned());
    if let Some(path) = &settings.ca_file {
        parameters = parameters.add_root_certificate(certificates(path)?);
    }
    let parameters = parameters.build_rustls();
    let parameters = parameters.map_err(|problem| DeliveryError::failed(format!("cannot prepare TLS: {problem}")))?;
    let (tls, port) = match (url.scheme(), &settings.user) {
        ("smtps", _) => (Tls::Wrapper(parameters), 465),
        (_, Some(_)) => (Tls::Required(parameters), 587),
        (_, None) => (Tls::Opportunistic(parameters), 25),
    };
    let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host);
    Ok(builder.port(url.port().unwrap_or(port)).tls(tls))
}

fn certificates(path: &Path) -> Result<Certificate, DeliveryError> {
    let failed = |problem: String| DeliveryError::failed(format!("cannot read {}: {problem}", path.display()));
    let text = fs::read(path).map_err(|problem| failed(problem.to_string()))?;
    Certificate::from_pem(&text).map_err(|problem| failed(problem.to_string()))
}

fn message(settings: &ReceiverSettings, outgoing: &OutgoingMessage<'_>) -> Result<Message, String> {
    let mailbox = |text: &String| {
        text.parse::<Mailbox>()
            .map_err(|problem| format!("{text:?}: {problem}"))
    };
    let from = settings.from.as_ref().ok_or("the sender is missing")?;
    let thread = message_id(&outgoing.key());
    let id = message_id(&outgoing.id());
    let subject = format!("[{}] {}", outgoing.cluster, outgoing.incident.title);
    let mut builder = Message::builder()
        .from(mailbox(from)?)
        .subject(subject)
        .message_id(Some(id))
        .in_reply_to(thread.clone())
        .references(thread)
        .header(ContentType::TEXT_PLAIN);
    for to in &settings.to {
        builder = builder.to(mailbox(to)?);
    }
    let text = outgoing.lines().join("\r\n") + "\r\n";
    let mut message = builder.body(text).map_err(|problem| problem.to_string())?;
    // RFC 3834: programs that answer mail do not answer this one.
    let name = HeaderName::new_from_ascii_str("Auto-Submitted");
    let value = HeaderValue::new(name, "auto-generated".to_owned());
    message.headers_mut().insert_raw(value);
    Ok(message)
}

/// Makes a message id of a key; other characters than those of an id become hyphens.
fn message_id(key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let key: String = key.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    format!("<{key}@{ID_DOMAIN}>")
}
