//! The brain: [`step`] takes the state and one event and gives actions. Nothing else decides.
//!
//! What one must know:
//! - An [`Event`] is something that happened, an [`Action`] something to do. What became of an action returns as an
//!   event; nothing else flows back.
//! - A [`Plan`] is a wanted state of one job: immutable, with a parent and reasons. [`plan_check`] may refuse it before
//!   anything is done.
//! - A job walks `Pending > Fencing > Launching > Starting > Running`; a failure leads back to `Fencing` with the next
//!   generation, or to `Stopped`.
//!
//! Invariants, checked after every event of a random walk by [`invariants::check`]:
//! - At most one generation of a job acts (RG-3); commits of a fenced generation are never asked for (RG-1).
//! - A node is cordoned only for a root, and only within the budget (RG-6, RG-7).
//! - Every phase that waits has a timer (RG-9).
//! - Same events, same state, same actions (RG-8): no clock, no randomness, no files, ordered maps throughout.
//!
//! Absent on purpose: several controllers sharing one state, priorities between jobs, and placement by topology beyond
//! "keep ranks where they were".

mod action;
mod brain;
mod calls;
mod cases;
mod catalogue;
mod checkpoints;
mod event;
mod fleet;
pub mod invariants;
mod job;
mod plan;
mod plan_check;
mod policy;
mod recovery;
mod rhythm;
mod state;
mod tempo;
mod views;

pub use action::Action;
pub use brain::{Adoption, Answers, Hang, scope_of, step};
pub use event::{Event, Stamped, Timer};
pub use fleet::{Fleet, Node};
pub use job::{Job, Phase};
pub use plan::{Plan, PlanKind};
pub use plan_check::{PlanProblem, plan_check};
pub use policy::{Gate, Policy, Record};
pub use state::State;
pub use tempo::{Slow, Tempo};
