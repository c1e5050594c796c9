//! Access control of the controller: who may do what, and the record of who did what.
//!
//! An [`AccessRole`] is the right of a caller, a [`TokenScope`] the part of the cluster that a token reaches. A
//! [`CallerIdentity`] combines both with the name for the audit log. A [`TokenStore`] holds the access tokens of the HTTP
//! API, an [`EnrolmentLedger`] the join tokens of nodes and the certificates that were issued with them, a [`RateLimiter`] bounds changes and failed authentications, an [`AuditLog`] records every change and every refusal.
//!
//! Invariants:
//! - A token is stored as its SHA-256 hash only; its value leaves this crate once, in the answer to its creation.
//! - A hash is compared with every stored hash in constant time.
//! - A revoked token is refused from the moment of its revocation, also if the file cannot be written; then until the
//!   restart, which is reported.
//! - A damaged token file is an error with its line, so that a controller never starts with fewer revocations than were made.
//! - A change is recorded before it is carried out; without a record there is no change, except the revocation of a token.
//! - Files, tables and waits are bounded (RG-9).
//!
//! Not included: certificates (`rankguard-identity`), and the rules of the routes (`rankguard-api`).

mod audit;
mod caller;
mod digest;
mod enrolment;
mod idempotency;
mod rate_limit;
mod role;
mod scope;
mod secret;
mod token;
mod token_file;
mod token_store;

pub use audit::{
    AUDIT_ACTIONS, AuditDoor, AuditEntry, AuditError, AuditFilter, AuditLog, AuditOutcome, AuditPage, AuditTicket,
    NewAuditEntry,
};
pub use caller::CallerIdentity;
pub use enrolment::{
    EnrolmentLedger, EnrolmentRefusal, IssueAttempt, IssuedToNode, JoinTokenDetails, JoinTokenError, JoinTokenState,
    JoinTokenView, LEDGER_FILE, LedgerFileError, NewJoinToken, NodeCertificate,
};
pub use idempotency::{IdempotencyTable, KeyState};
pub use rate_limit::RateLimiter;
pub use role::{AccessRole, RoleError};
pub use scope::TokenScope;
pub use secret::TokenSecret;
pub use token::{NewToken, RevokedToken, TokenDetails, TokenError, TokenRejection, TokenState, TokenView};
pub use token_file::{TOKEN_FILE, TokenFileError};
pub use token_store::{AuthenticatedToken, TokenStore};
