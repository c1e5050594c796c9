//! Seeded simulation around the decision core: the live code, under faults defined as data.
//!
//! A [`FaultScript`] defines the nodes, their job and the faults. A [`SimulatedWorld`] simulates agents, ranks and the checkpoint
//! store in virtual time, sends the decision core the same events as a live shell would, and carries out its actions.
//! The [`WorldTranscript`] is the report for an operator.
//!
//! Faults reach the decision core only as log lines and exits: the lines pass the same triage as on a live node, and
//! the hidden truth remains in the script, for the test that compares.
//!
//! Invariants: the same script and seed give the same transcript, byte for byte (RG-8); the invariants of
//! [`rankguard_core::invariants`] hold after every event.
//!
//! Not included: published traces, comparison of policies over many seeds, and correlated faults by rail, switch or
//! power feed.

mod agent;
mod dice;
mod fault;
mod log_triage;
mod script;
mod transcript;
mod world;

pub use dice::SeededRandom;
pub use fault::{ScriptedFault, SurvivingImages};
pub use script::{FaultScript, ScriptError};
pub use transcript::WorldTranscript;
pub use world::{SimulatedWorld, SimulationOutcome};
