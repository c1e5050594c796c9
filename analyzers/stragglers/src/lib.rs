//! Operation timings in, who slows a job down and by how much out.
//!
//! Two forms are read ([`read_timings`]): one row an operation (passes, sends, collectives) of every pipeline worker, and
//! one row a rank and step. Of operations the step is run again on paper, after "Understanding Stragglers in Large Model
//! Training Using What-if Analysis" (OSDI 2025): with recorded durations, with ordinary ones, and with one part of the
//! slowness taken away at a time ([`WhatIf`] holds the published figures under their published names). What each part is
//! worth decides the cause ([`CauseKind`]): slow worker, slow stage, data imbalance, communication, pauses.
//!
//! Words: a *worker* is one stage of one data-parallel rank, tensor-parallel ranks folded; a *pass* is the forward or
//! backward computation of one microbatch through one model chunk; a *transfer* is communication without the waiting.
//!
//! Invariants: no input ends in a panic, what cannot be used is a problem with file, row and field (RG-11); the order of rows
//! and the numbers given to ranks and steps change nothing but names.
//!
//! Absent on purpose: the network's and the hardware's rated speed. Where all links or all workers are slow alike nothing
//! here stands out, and the report says so instead of guessing.

mod correlation;
mod factors;
mod graph;
mod job;
mod meta;
mod operation;
mod p2p;
mod parquet_file;
mod parts;
mod per_step;
mod places;
mod problem;
mod reading;
mod report;
mod simulate;
mod slot;
mod statistics;
mod step_causes;
mod step_table;
mod table;
mod text_file;
mod verdict;
mod whatif;

pub use meta::{Meta, read_meta};
pub use operation::{OpType, Operation, StepTiming, Timings};
pub use problem::{Problem, Problems};
pub use reading::read_timings;
pub use report::{Cause, CauseKind, Place, Report, StepTime};
pub use whatif::{Effect, WhatIf};

/// Says what slows a job down. `name` is what the report calls the job, `problems` are those of reading; `meta` may be
/// absent, for sizes are told from the trace.
pub fn analyse(name: &str, timings: &Timings, meta: Option<&Meta>, problems: Problems) -> Report {
    match timings {
        Timings::Operations(rows) => verdict::of_operations(name, rows, meta, problems),
        Timings::Steps(rows) => per_step::of_steps(name, rows, problems),
    }
}
