//! A seeded world around the brain: the code that runs live, under hardship written as data.
//!
//! A [`Script`] says which nodes there are, what job they run and what breaks when. A [`World`] plays agents, ranks and the
//! checkpoint store in virtual time, feeds the brain the same events a live shell would, and carries its actions out. The
//! [`Transcript`] is what an operator would want to read afterwards.
//!
//! What is broken reaches the brain only as lines and exits: the lines go through the same triage as on a live node, and
//! the hidden truth stays in the script, for the test that judges.
//!
//! Invariants: same script, same seed, same transcript, byte for byte (RG-8); the sentences of
//! [`rankguard_core::invariants`] hold after every event.
//!
//! Absent: playing published traces, comparing policies over many seeds, and correlated hardship by rail, switch or power
//! feed.

mod agent;
mod dice;
mod fault;
mod script;
mod transcript;
mod witness;
mod world;

pub use dice::Dice;
pub use fault::{Fault, Left};
pub use script::{Script, ScriptError};
pub use transcript::Transcript;
pub use world::{Ended, World};
