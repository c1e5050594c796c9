//! Bodies of requests, one module a kind of receiver. Pure: a message gives a document.

pub(crate) mod alertmanager;
pub(crate) mod pagerduty;
pub(crate) mod slack;
pub(crate) mod webhook;

use rankguard_model::{Severity, Timestamp};

use crate::incident::Incident;

/// Message with what its documents need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingMessage<'a> {
    pub(crate) cluster: &'a str,
    /// Name of the event.
    pub(crate) event: &'a str,
    pub(crate) incident: &'a Incident,
    pub(crate) sent_at: Timestamp,
}

impl OutgoingMessage<'_> {
    /// Returns the key of its thread, the same in all messages of an incident.
    pub(crate) fn key(&self) -> String {
        thread_key(self.cluster, self.incident)
    }

    /// Returns the id of the message, the same if it is sent twice.
    pub(crate) fn id(&self) -> String {
        let incident = self.incident;
        let mark = incident.mark().replace(' ', "/");
        format!("{}/{}/{mark}", self.key(), incident.opened_at.as_millis())
    }

    /// Returns title and details as lines, with the command at the end.
    pub(crate) fn lines(&self) -> Vec<String> {
        let incident = self.incident;
        let title = format!("[{}] {}", self.cluster, incident.title);
        let details = incident.details.iter().cloned();
        let command = format!("More: {}", incident.command);
        std::iter::once(title).chain(details).chain([command]).collect()
    }
}

/// Returns the key of an incident's thread.
pub(crate) fn thread_key(cluster: &str, incident: &Incident) -> String {
    format!("{cluster}/{}", incident.key)
}

pub(crate) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Failure => "failure",
    }
}
