//! Document of an entry of the audit log.

use rankguard_access::AuditEntry;
use serde::Serialize;
use utoipa::ToSchema;

use super::UtcTime;

/// Entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditDocument {
    /// Number of the entry.
    seq: u64,
    at: UtcTime,
    /// Caller: role and name of a certificate, id and name of a token, or `local`.
    actor: String,
    /// `grpc` for the commands of `rankguard`, `http`, `enrolment` for nodes without a certificate, or `controller`.
    door: String,
    /// Address of the client.
    address: Option<String>,
    /// Name of the change.
    action: String,
    /// Object of the change; empty without one.
    target: String,
    /// Reason or text of the caller.
    detail: String,
    /// `done`, `refused`, or `unknown` if the result was not recorded.
    outcome: String,
    /// Reason of a refusal or of an unknown result; empty otherwise.
    message: String,
}

impl AuditDocument {
    pub(crate) fn of(entry: AuditEntry) -> Self {
        Self {
            seq: entry.seq,
            at: UtcTime(entry.at),
            actor: entry.actor,
            door: entry.door.word().to_owned(),
            address: entry.address,
            action: entry.action,
            target: entry.target,
            detail: entry.detail,
            outcome: entry.outcome.word().to_owned(),
            message: entry.message,
        }
    }
}
