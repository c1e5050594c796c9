//! Decision core of the controller: [`step`] takes the state and one event and returns actions. All
//! decisions of the controller are made here.
//!
//! Terms:
//! - An [`Event`] is an input, an [`Action`] a requested effect. The outcome of an action returns as an event; there is
//!   no other feedback.
//! - A [`Plan`] is the wanted state of one job: immutable, with a parent and reasons. [`plan_check`] may refuse it
//!   before it is carried out.
//! - A job passes through `Pending > Fencing > Adopting > Launching > Starting > Running > Finished`; a failure leads
//!   back to `Fencing` with the next generation, or to `Stopped` ([`JobPhase`]).
//!
//! Invariants, checked after every event of a random walk by [`invariants::check`]:
//! - At most one generation of a job acts (RG-3); commits of a fenced generation are never requested (RG-1).
//! - A node with ranks that no plan places there takes no work until its agent has confirmed that they ended (RG-3).
//! - A node is cordoned only for a root, and only within the budget (RG-6, RG-7).
//! - Every phase that waits has a timer (RG-9).
//! - Same events, same state, same actions (RG-8): no clock, no randomness, no files, ordered maps throughout.
//!
//! Not included: several controllers on one state, priorities between jobs, and placement by topology beyond ranks that
//! remain on their nodes.

mod action;
pub mod authority;
mod calls;
mod cases;
mod catalogue;
mod checkpoints;
mod confined_errors;
mod controller_starts;
mod cordon_budget;
mod counted_nouns;
mod decision;
mod event;
mod fence;
mod fleet;
mod floors;
mod growth;
mod growth_preparation;
mod interval_inputs;
pub mod invariants;
mod job;
mod job_activity;
mod launch_record;
mod limits;
mod missed_reports;
mod order_ledger;
mod plan;
mod plan_check;
mod planned_wait;
mod planner;
mod policy;
mod progress_mark;
mod rank_notes;
mod recovery;
mod repeated_failures;
mod restore_report;
mod start_record;
mod state;
mod step_times;
mod suspicion;
mod views;
mod witness_ring;

pub use action::{Action, ChunkName};
pub use checkpoints::{DeadAttempts, JobCheckpoints, OpenAttempt};
pub use controller_starts::{ControllerStarts, JournalLoss};
pub use cordon_budget::CordonBudget;
pub use decision::{AdoptionStage, PreflightResults, RefusedEvidence, SilentRanks, scope_of, step};
pub use event::{CheckFinding, Event, SameSizeCheckpoint, StampedEvent, TimerKey, UnusableCheckpoint};
pub use fence::FenceRequest;
pub use fleet::{AgentFarewell, CORDON_REASONS_MAX, Fleet, Node};
pub use floors::GenerationFloors;
pub use growth::PendingGrowth;
pub use job::{Job, JobPhase};
pub use job_activity::{JobActivity, RankActivity};
pub use launch_record::LaunchRecord;
pub use limits::RemovedCounts;
pub use order_ledger::OrderLedger;
pub use plan::{Plan, PlanKind};
pub use plan_check::{PlanProblem, plan_check};
pub use policy::{FailureHistory, Policy, PreflightMode, RULES};
pub use progress_mark::ProgressMark;
pub use rank_notes::RankNotes;
pub use start_record::StartRecord;
pub use state::DecisionState;
pub use step_times::{SlowRank, StepTimes};
pub use views::JobSummary;
pub use witness_ring::{WITNESSES_MAX, WitnessRing};
