//! When to checkpoint, how often on which tier, where copies survive, and what memory that takes.
//!
//! - [`interval`]: the best interval of one level; [`levels`]: of several; [`governor`]: the one in force.
//! - [`rates`] and [`priors`]: how often things fail, as a Gamma belief that starts from published figures.
//! - [`plan`]: all of it together for one job, with the reasoning and the alternatives.
//! - [`survival`], [`lanes`] and [`spares`]: whether copies and parity outlive losses, and how many nodes must stand by.
//! - [`admission`]: whether memory suffices; [`windows`]: what saves with less of it cost. [`retention`]: which checkpoints stay. [`twins`]: replicas that differ.
//! - [`agreement`]: how all ranks come to checkpoint the same step without a barrier.
//!
//! Invariants: pure (no clock, randomness, files, sockets). Every model says its source; times are seconds, rates
//! failures a second of the job or a node-hour of the cluster, as each item says.
//!
//! Absent: correlated failures, ageing (rates are constant), and Moody's Markov model.

pub mod admission;
pub mod agreement;
pub mod average;
pub mod ettr;
pub mod governor;
pub mod interval;
pub mod lanes;
pub mod levels;
pub mod pairs;
pub mod plan;
pub mod priors;
pub mod rates;
pub mod retention;
pub mod spares;
pub mod special;
pub mod survival;
pub mod twins;
pub mod windows;
