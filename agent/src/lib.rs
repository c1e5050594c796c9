//! One daemon a node: collectors, triage, spool, uplink, orders, ranks, checkpoint service.
//!
//! An agent observes and carries out orders; it never decides. [`run`] takes [`Settings`] and works until it is told to
//! shut down.
//!
//! The way of what is seen: a collector (one thread each) or a rank leaves a sighting in the *intake* (bounded, never
//! waits); the *spool* gives it a number and makes it durable; the *uplink* sends it until the controller has
//! acknowledged it. The way of an order: uplink, one worker, then launcher, checkpoint service or both; what came of it
//! is evidence again.
//!
//! Invariants:
//! - nothing is sent before it is durable, and a number never gets a second meaning; what is lost is counted (RG-4);
//! - orders, seals and introductions of ranks below the job's fence are refused, also after a restart (RG-3);
//! - ranks do not outlive the agent, and a lost controller does not stop them (RG-5);
//! - no call that may never return is waited for by anything but its own thread (RG-12).
//!
//! Absent: a Prometheus endpoint, plug-ins, stack collection, cgroups, TLS (listen on loopback or a trusted network),
//! and in each collector what its own module says.

mod agent;
mod checkpoints;
mod clock;
mod collectors;
mod error;
mod fences;
mod intake;
mod orders;
mod ranks;
mod settings;
mod sighting;
mod spool;
mod uplink;

pub use agent::run;
pub use error::{AgentError, Ended};
pub use settings::{Intervals, KernelLogSource, Settings};
pub use spool::SpoolError;
