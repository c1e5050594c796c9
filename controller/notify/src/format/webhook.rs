//! Documents of the generic webhook, version 1, and their signature.

use rankguard_model::{CaseId, ClassId, JobId, NodeId};
use ring::hmac;
use serde::Serialize;

use super::{OutgoingMessage, severity_name};
use crate::incident::IncidentKey;

/// Header of the signature: `sha256=` and HMAC-SHA256 of the body in hexadecimal.
pub(crate) const SIGNATURE_HEADER: &str = "x-rankguard-signature";

/// Document of a webhook.
#[derive(Debug, Serialize)]
struct WebhookDocument<'a> {
    /// Version of the schema.
    version: u32,
    /// Id of the message: the same if it is delivered twice.
    id: String,
    /// Key of the thread.
    key: String,
    event: &'a str,
    cluster: &'a str,
    severity: &'a str,
    title: &'a str,
    details: &'a [String],
    command: &'a str,
    case: Option<CaseId>,
    alarm: Option<&'a str>,
    job: Option<&'a JobId>,
    node: Option<&'a NodeId>,
    class: Option<&'a ClassId>,
    drill: bool,
    opened_at: String,
    ended_at: Option<String>,
    sent_at: String,
}

/// Makes the body.
pub(crate) fn body(message: &OutgoingMessage<'_>) -> serde_json::Result<Vec<u8>> {
    let incident = message.incident;
    let document = WebhookDocument {
        version: 1,
        id: message.id(),
        key: message.key(),
        event: message.event,
        cluster: message.cluster,
        severity: severity_name(incident.severity),
        title: &incident.title,
        details: &incident.details,
        command: &incident.command,
        case: match &incident.key {
            IncidentKey::Case(id) => Some(*id),
            _ => None,
        },
        alarm: match &incident.key {
            IncidentKey::Alarm { kind, .. } => Some(kind.name()),
            _ => None,
        },
        job: incident.job.as_ref(),
        node: incident.node.as_ref(),
        class: incident.class.as_ref(),
        drill: incident.is_drill,
        opened_at: incident.opened_at.to_string(),
        ended_at: incident.ended_at.map(|at| at.to_string()),
        sent_at: message.sent_at.to_string(),
    };
    serde_json::to_vec(&document)
}

/// Returns the value of the signature header.
pub(crate) fn signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, body);
    let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 2 of RFC 4231.
    #[test]
    fn a_signature_is_hmac_sha256() {
        assert_eq!(
            signature("Jefe", b"what do ya want for nothing?"),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
