//! Entries of the audit log.

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Longest text of an entry's field, characters; longer text is cut off.
const TEXT_MAX: usize = 512;

/// Groups of actions and the actions of entries, by which a filter may select. Names are added and never changed.
pub const AUDIT_ACTIONS: &[&str] = &[
    "access",
    "access.authenticate",
    "access.authorize",
    "audit",
    "audit.damage",
    "audit.drop",
    "case",
    "case.acknowledge",
    "case.close",
    "case.comment",
    "case.correct",
    "case.note",
    "enrolment",
    "enrolment.enrol",
    "enrolment.renew",
    "job",
    "job.cancel",
    "job.submit",
    "join-token",
    "join-token.create",
    "join-token.revoke",
    "node",
    "node.cordon",
    "node.drain",
    "node.forget",
    "node.uncordon",
    "token",
    "token.create",
    "token.revoke",
];

/// Interface through which a change came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditDoor {
    /// gRPC: the commands of `rankguard`.
    Grpc,
    /// Request of the HTTP API.
    Http,
    /// Connection of a node without a certificate.
    Enrolment,
    /// The controller itself: removal of old entries, damage of a file.
    Controller,
}

impl AuditDoor {
    /// Returns the text of the door in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Enrolment => "enrolment",
            Self::Controller => "controller",
        }
    }
}

/// Result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// The change was carried out.
    Done,
    /// The change was refused and has no effect.
    Refused,
    /// The result was not recorded: the answer did not arrive in time, or the controller ended meanwhile.
    Unknown,
}

impl AuditOutcome {
    /// Returns the text of the outcome in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// Change to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAuditEntry {
    /// Caller, as [`CallerIdentity`](crate::CallerIdentity) names it.
    pub actor: String,
    /// Interface of the caller.
    pub door: AuditDoor,
    /// Address of the client.
    pub address: Option<String>,
    /// Name of the change: `node.cordon`, `token.create`.
    pub action: String,
    /// Object of the change: a node, a job, a case or a token; empty without one.
    pub target: String,
    /// Reason or text of the caller.
    pub detail: String,
    /// Idempotency key of the request and the fingerprint of its content.
    pub key: Option<String>,
}

/// Entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Number of the entry, counted from 1.
    pub seq: u64,
    /// Time of the request.
    pub at: Timestamp,
    /// Caller that requested the change.
    pub actor: String,
    /// Interface of the caller.
    pub door: AuditDoor,
    /// Address of the client, if known.
    pub address: Option<String>,
    /// Name of the change.
    pub action: String,
    /// Object of the change; empty without one.
    pub target: String,
    /// Reason or text of the caller.
    pub detail: String,
    /// Result of the change.
    pub outcome: AuditOutcome,
    /// Reason of a refusal or of an unknown result, or what a change that was carried out lacks; empty otherwise.
    pub message: String,
    /// Idempotency key of the request and the fingerprint of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl AuditEntry {
    /// Creates an entry with cut texts.
    pub(crate) fn new(entry: NewAuditEntry, seq: u64, at: Timestamp, outcome: AuditOutcome, message: &str) -> Self {
        Self {
            seq,
            at,
            actor: cut(&entry.actor),
            door: entry.door,
            address: entry.address.as_deref().map(cut),
            action: cut(&entry.action),
            target: cut(&entry.target),
            detail: cut(&entry.detail),
            outcome,
            message: cut(message),
            key: entry.key.as_deref().map(cut),
        }
    }
}

/// Returns the first characters of a text.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

/// Selection of entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Earliest time of an entry.
    pub since: Option<Timestamp>,
    /// Time before which the entry was made.
    pub until: Option<Timestamp>,
    /// Text that the actor contains.
    pub actor: Option<String>,
    /// Action of [`AUDIT_ACTIONS`]; a group selects its actions: `node` selects `node.cordon`.
    pub action: Option<String>,
    /// True for entries with an idempotency key only.
    pub has_key: bool,
}

impl AuditFilter {
    /// Returns true if the entry is selected.
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        let is_group = |action: &String| {
            let rest = entry.action.strip_prefix(action.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
            && self
                .actor
                .as_ref()
                .is_none_or(|actor| entry.actor.contains(actor.as_str()))
            && self.action.as_ref().is_none_or(is_group)
            && (!self.has_key || entry.key.is_some())
    }
}
