//! Events of PagerDuty's Events API v2.

use rankguard_model::Severity;
use serde_json::json;

use super::OutgoingMessage;
use crate::incident::Incident;

/// Longest summary, characters.
const SUMMARY_MAX: usize = 1_024;

/// Makes the body: `trigger`, or `resolve` at the end of the incident. The routing key is the secret.
pub(crate) fn body(message: &OutgoingMessage<'_>, routing_key: &str) -> serde_json::Result<Vec<u8>> {
    let incident = message.incident;
    if incident.stage.is_end() {
        return serde_json::to_vec(&json!({
            "routing_key": routing_key,
            "event_action": "resolve",
            "dedup_key": message.key(),
        }));
    }
    let summary = format!("[{}] {}", message.cluster, incident.title);
    let summary: String = summary.chars().take(SUMMARY_MAX).collect();
    serde_json::to_vec(&json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": message.key(),
        "client": "rankguard",
        "payload": {
            "summary": summary,
            "source": source(message),
            "severity": severity(incident),
            "timestamp": incident.opened_at.to_string(),
            "component": incident.job,
            "group": message.cluster,
            "class": incident.class,
            "custom_details": { "details": incident.details, "command": incident.command, "event": message.event },
        },
    }))
}

fn source(message: &OutgoingMessage<'_>) -> String {
    let incident = message.incident;
    let node = incident.node.as_ref().map(ToString::to_string);
    let job = incident.job.as_ref().map(ToString::to_string);
    node.or(job).unwrap_or_else(|| message.cluster.to_owned())
}

fn severity(incident: &Incident) -> &'static str {
    match incident.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Failure => "critical",
    }
}
