//! Audit log: every change by any door, with its author, its time and its result, and every refused change.

mod entry;
mod file;
mod log;
mod reader;

pub use entry::{AUDIT_ACTIONS, AuditDoor, AuditEntry, AuditFilter, AuditOutcome, NewAuditEntry};
pub use log::{AuditError, AuditLog, AuditTicket};
pub use reader::AuditPage;
