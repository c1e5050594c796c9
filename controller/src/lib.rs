//! Shell of the decision core: event loop, journal, sessions and executors.
//!
//! [`run`] is the controller's whole life. One task owns the state; all inputs reach it through one bounded queue.
//! Inputs become events, the events are written to the [`journal`] in one synced commit, then the decision core applies
//! them one by one and executors carry out its actions. The outcome of an action returns as an event.
//!
//! Terms: a *session* is one agent's open stream; an *input* is a message of a session, an operator or an executor; a
//! *batch* is the events of one journal commit.
//!
//! Invariants:
//! - Evidence is acknowledged only after the commit that holds it (RG-4), and is applied once, even if it is sent
//!   twice.
//! - The decision core receives exactly the bytes that a replay would: an event is applied in the form decoded from its
//!   journal entry, so a restarted controller has the same state (RG-5, RG-8).
//! - Every wait has a deadline, and every queue has a limit and a rule for when it is full (RG-9); both are documented
//!   at their constant.
//! - Memory and disk are bounded: an agent has one batch of evidence in the controller ([`inbound`]), the journal holds
//!   what its retention allows ([`keeper`]), and if it cannot be written the controller waits instead of ending.
//! - Recorded evidence never reaches a live cluster: a controller accepts live agents and jobs, or replays only
//!   ([`rankguard_core::Policy::replay_only`]), and refuses the sessions and the journal of the other mode.
//! - The HTTP API reads a copy of the state in a thread of its own ([`rankguard_api`]), which the event loop feeds and
//!   never waits for.
//! - Notifications are sent by a thread of its own ([`rankguard_notify`]), which takes the newest facts and delays nothing.
//! - Without an identity the controller listens on loopback only. With one, an agent's certificate authorises its own
//!   node, an operator's certificate the operator service, and neither authorises the other ([`rankguard_identity`]).
//!   Exception: the lighthouse for torchft, which has no TLS, listens where its setting states.
//!
//! Modules lie in layers; a module imports modules of lower layers only (`tests/house`):
//!
//! | layer | modules | purpose |
//! |---|---|---|
//! | 6 | `run` | life of a controller: opens the journal, listens, runs, ends |
//! | 5 | `event_loop` | select, journal, apply |
//! | 4 | `http_api`, `operator`, `replay`, `torchft` | start of the HTTP API; operator service; replay-only mode; start of the lighthouse |
//! | 3 | `command_executor`, `enrolment_service`, `grpc_reflection`, `intake`, `join_tokens`, `lighthouse_service`, `node_query`, `rendezvous_service`, `settings` | commands of operators; enrolment and renewal; server reflection; inputs to events; join tokens; torchft's managers; queries about one node; torchrun processes; settings |
//! | 2 | `batch`, `catalogue`, `enrolment`, `grpc_health`, `lighthouse_task`, `notify_reload`, `pauses`, `rendezvous_task`, `scheduled_report`, `session`, `submission` | events of one commit; catalogue files; certificates of agents; gRPC health; quorums of torchft; reload of receivers; pauses of the controller; rounds of torchrun; reports of the fleet; sessions; submissions |
//! | 1 | `access_control`, `address`, `authority`, `claims`, `commits`, `health`, `input`, `journal_keeper`, `lighthouse`, `notifications`, `state_dir`, `void_reports`, `witnesses` | tokens and audit log, inputs, rules for evidence, claims and commits in stores, journal, reports, quorums |
//! | 0 | `bind`, `clock`, `error`, `evidence_limits`, `gap`, `inbound`, `join`, `liveness`, `name_conflicts`, `operator_calls`, `quorum_ids`, `rendezvous`, `replies`, `report_schedule`, `reserve`, `revoked_agents`, `same_size`, `session_table`, `shutdown_report`, `timers` | tables, limits, clocks, errors, rights of calls |
//!
//! Not included: several controllers on one state; webhook and scheduler executors.

mod access_control;
mod address;
mod authority;
mod batch;
mod bind;
mod catalogue;
mod claims;
mod clock;
mod command_executor;
mod commits;
mod enrolment;
mod enrolment_service;
mod error;
mod event_loop;
mod evidence_limits;
mod gap;
mod grpc_health;
mod grpc_reflection;
mod health;
mod http_api;
mod inbound;
mod input;
mod intake;
mod join;
mod join_tokens;
mod journal_keeper;
mod lighthouse;
mod lighthouse_service;
mod lighthouse_task;
mod liveness;
mod name_conflicts;
mod node_query;
mod notifications;
mod notify_reload;
mod operator;
mod operator_calls;
mod pauses;
mod quorum_ids;
mod rendezvous;
mod rendezvous_service;
mod rendezvous_task;
mod replay;
mod replies;
mod report_schedule;
mod reserve;
mod revoked_agents;
mod run;
mod same_size;
mod scheduled_report;
mod session;
mod session_table;
mod settings;
mod shutdown_report;
mod state_dir;
mod submission;
mod timers;
mod torchft;
mod void_reports;
mod witnesses;

pub use address::{ADDRESS_FILE, HTTP_ADDRESS_FILE, METRICS_ADDRESS_FILE, TORCHFT_ADDRESS_FILE, read_address};
pub use catalogue::CatalogueFiles;
pub use enrolment::EnrolmentSettings;
pub use error::ControllerError;
pub use notifications::cluster_name;
pub use notify_reload::NotifyReload;
/// Mode of the preflight checks before each generation.
pub use rankguard_core::PreflightMode;
pub use rankguard_journal as journal;
pub use rankguard_journal::JournalRetention;
pub use report_schedule::{ReportPeriod, ReportSchedule};
pub use run::run;
pub use scheduled_report::ReportSettings;
pub use settings::{Settings, TorchftSettings};
pub use shutdown_report::ShutdownReport;
