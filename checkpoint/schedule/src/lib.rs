//! Checkpoint schedule models: intervals, tiers, survival of copies and memory admission.
//!
//! - [`interval`]: the best interval of one level; [`levels`]: of several; [`governor`]: the one in force.
//! - [`rates`] and [`priors`]: failure rates, as Gamma beliefs that start from published figures.
//! - [`plan`]: all of it together for one job, with the reasoning and the alternatives.
//! - [`survival`], [`lanes`] and [`spares`]: probability that copies and parity survive node losses, and number of
//!   spare nodes.
//! - [`admission`]: memory check; [`windows`]: cost of saves with less memory. [`retention`]: checkpoints to retain.
//!   [`replica_differences`]: replicas that differ.
//! - [`agreement`]: barrier-free agreement of all ranks on the step to checkpoint.
//!
//! Invariants: pure (no clock, randomness, files, sockets). Every model cites its source; times are seconds, rates are
//! failures per second of the job or per node-hour of the cluster, as each item states.
//!
//! Not modelled: correlated failures, ageing (rates are constant), and Moody's Markov model.

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
pub mod replica_differences;
pub mod retention;
pub mod spares;
pub mod special;
pub mod survival;
pub mod windows;
