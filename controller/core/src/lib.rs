//! Decision core of the controller: [`step`] takes the state and one event and returns actions. No other code decides.
//!
//! Terms:
//! - An [`Event`] is an input, an [`Action`] a requested effect. The outcome of an action returns as an event; there is
//!   no other feedback.
//! - A [`Plan`] is the wanted state of one job: immutable, with a parent and reasons. [`plan_check`] may refuse it
//!   before it is carried out.
//! - A job passes through `Pending > Fencing > Adopting > Launching > Starting > Running`; a failure leads back to
//!   `Fencing` with the next generation, or to `Stopped`.
//!
//! Invariants, checked after every event of a random walk by [`invariants::check`]:
//! - At most one generation of a job acts (RG-3); commits of a fenced generation are never asked for (RG-1).
//! - A node with ranks that no plan places there takes no work until its agent has confirmed that they ended (RG-3).
//! - A node is cordoned only for a root, and only within the budget (RG-6, RG-7).
//! - Every phase that waits has a timer (RG-9).
//! - Same events, same state, same actions (RG-8): no clock, no randomness, no files, ordered maps throughout.
//!
//! Not included: several controllers on one state, priorities between jobs, and placement by topology beyond ranks that
//! remain on their nodes.

mod action;
pub mod authority;
mod brain;
mod calls;
mod cases;
mod catalogue;
mod checkpoints;
mod cordon_budget;
mod event;
mod fence;
mod fleet;
mod floors;
mod growth;
pub mod invariants;
mod job;
mod job_activity;
mod launch_record;
mod limits;
mod lives;
mod order_ledger;
mod plan;
mod plan_check;
mod policy;
mod progress_mark;
mod recovery;
mod rhythm;
mod state;
mod suspicion;
mod tempo;
mod views;
mod witness_ring;

pub use action::{Action, ChunkName};
pub use brain::{Adoption, Answers, Hang, RefusedEvidence, scope_of, step};
pub use cordon_budget::CordonBudget;
pub use event::{CheckFinding, Event, Stamped, Timer};
pub use fence::FenceRequest;
pub use fleet::{Fleet, Node};
pub use floors::GenerationFloors;
pub use growth::Growth;
pub use job::{Job, Phase};
pub use job_activity::{JobActivity, RankActivity};
pub use launch_record::LaunchRecord;
pub use limits::Removed;
pub use lives::{ControllerLives, JournalLoss};
pub use order_ledger::OrderLedger;
pub use plan::{Plan, PlanKind};
pub use plan_check::{PlanProblem, plan_check};
pub use policy::{Gate, Policy, RULES, Record};
pub use progress_mark::ProgressMark;
pub use state::State;
pub use tempo::{Slow, Tempo};
pub use witness_ring::{WITNESSES_MAX, WitnessRing};
