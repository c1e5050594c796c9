//! Recovery policies compared by simulation: one training job under the failures and absences of a trace.
//!
//! - [`trace`]: what happened to nodes; [`synthetic`]: made up; [`weather`]: what of it strikes one job.
//! - [`job`]: how it steps, where its images go, how it comes back; [`policy`]: when it saves.
//! - [`run`]: one job through one weather; [`outcome`]: where its time went; [`compare`]: policies side by side.
//! - [`projection`]: mean time to failure and effective training time by size, as published.
//!
//! Intervals, patterns and beliefs are those of `rankguard-checkpoint-schedule`, the code that plans a live job.
//!
//! Invariants: pure (no clock, files, sockets), and random only by a seed that is given. The parts of a run add up to
//! its wall time, and no policy does better than the bound on the same weather (both are property tests).
//!
//! Absent: several jobs at a time, and what they take from each other.

pub mod compare;
pub mod job;
pub mod outcome;
pub mod policy;
pub mod projection;
pub mod random;
pub mod run;
pub mod synthetic;
pub mod trace;
pub mod weather;
