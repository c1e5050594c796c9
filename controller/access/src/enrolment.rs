//! Enrolment of nodes: join tokens, and the certificates that were issued with them.

mod join_token;
mod ledger;
mod ledger_file;

pub use join_token::{JoinTokenDetails, JoinTokenError, JoinTokenState, JoinTokenView, NewJoinToken};
pub use ledger::{EnrolmentLedger, EnrolmentRefusal, IssueAttempt, IssuedToNode};
pub use ledger_file::{LEDGER_FILE, LedgerFileError, NodeCertificate};
