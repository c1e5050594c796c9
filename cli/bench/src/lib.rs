//! Measurements of this program on this machine, and the torture test of its checkpoints.
//!
//! - `throughput` searches a generated log and compares with other tools (`rankguard bench match`);
//! - [`agent`] measures resource use and detection delay of an agent process (`rankguard bench agent`);
//! - [`checkpoint`] measures saves and loads against memory and disk (`rankguard bench checkpoint`);
//! - [`torture`] damages checkpoints and kills processes during saves (`rankguard checkpoint torture`).
//!
//! Agents, controllers, ranks and victims are processes of the running program, started by its own command lines. That
//! program parses the options, connects to the controller and prints the figures; none of that is here.

pub mod agent;
pub mod checkpoint;
mod throughput;
pub mod torture;

pub use throughput::{ThroughputFigure, ThroughputReport, healthy_log, matching};
