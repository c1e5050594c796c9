//! The shell around the brain: event loop, journal, sessions, executors.
//!
//! [`run`] is the controller's whole life. One task owns the brain's state; everything reaches it through one bounded
//! queue. What is queued becomes events, the events are written to the [`journal`] in one synced commit, then the brain
//! takes them one by one and its actions go to executors. What becomes of an action returns as an event.
//!
//! Words: a *session* is one agent's open stream; an *input* is what a session, an operator or an executor says; a
//! *batch* is the events of one journal commit.
//!
//! Invariants:
//! - Evidence is acknowledged only after the commit that holds it (RG-4), and enters the brain once, whatever is sent
//!   twice.
//! - The brain sees exactly the bytes that a replay would see: an event is stepped on as it reads back from its journal
//!   entry, so a restarted controller has the same state (RG-5, RG-8).
//! - No wait without a deadline, no queue without a size and a rule for when it is full (RG-9); both stand beside their
//!   constant.
//! - Memory and disk are bounded: an agent has one batch of evidence in the controller ([`inbound`]), the journal keeps what its
//!   retention names ([`keeper`]), and when it cannot be written the controller waits instead of ending.
//! - Recorded evidence never meets a live cluster: a controller takes live agents and jobs, or replays only
//!   ([`rankguard_core::Policy::replay_only`]), and each refuses the other's sessions and the other's journal.
//! - Without an identity only loopback is listened on; with one, an agent's certificate lets it speak for its own node, an
//!   operator's lets it use the operators' door, and neither does for the other ([`rankguard_identity`]).
//!
//! Absent: rights of single operators (each may do everything); several controllers on one state; HTTP, rendezvous and scheduler executors.

mod address;
mod authority;
mod batch;
mod catalogue;
mod claims;
mod clock;
mod commits;
mod ended;
mod error;
mod evidence_limits;
mod health;
mod helm;
mod inbound;
mod input;
mod intake;
mod join;
mod keeper;
mod liveness;
mod name_conflicts;
mod operator;
mod replay;
mod reserve;
mod roster;
mod run;
mod session;
mod settings;
mod state_dir;
mod submission;
mod timers;
mod void_reports;
mod witnesses;

pub use address::{ADDRESS_FILE, METRICS_ADDRESS_FILE, read_address};
pub use catalogue::CatalogueFiles;
pub use ended::Ended;
pub use error::ControllerError;
/// What a look at the nodes before each generation decides.
pub use rankguard_core::Gate;
pub use rankguard_journal as journal;
pub use rankguard_journal::JournalRetention;
pub use run::run;
pub use settings::Settings;
