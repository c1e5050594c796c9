//! Simulation of recovery policies: one training job under the failures and absences of a trace.
//!
//! - [`trace`]: node failures and absences; [`synthetic`]: generated traces; [`weather`]: the failure schedule of one
//!   job.
//! - [`job`]: steps, checkpoint tiers and recovery times; [`policy`]: checkpoint intervals.
//! - [`run`]: one job through one failure schedule; [`outcome`]: its time by use; [`compare`]: several policies.
//! - [`projection`]: mean time to failure and effective training time by job size, as published.
//!
//! Intervals, patterns and priors come from `rankguard-checkpoint-schedule`, the code that plans a live job.
//!
//! Invariants: pure (no clock, files, sockets), and random only by a given seed. The parts of a run add up to its
//! wall time, and no policy exceeds the bound on the same schedule (both are property tests).
//!
//! Absent: several concurrent jobs, and contention between them.

pub mod compare;
pub mod failure_schedule;
pub mod job;
pub mod outcome;
pub mod policy;
pub mod projection;
pub mod random;
pub mod run;
pub mod synthetic;
pub mod trace;
