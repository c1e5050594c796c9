//! Straggler analysis: reads operation timings and reports the cause and cost of a slow job.
//!
//! Two forms are read ([`read_timings`]): one row an operation (passes, sends, collectives) of every pipeline worker,
//! and one row a rank and step. A trace of operations is simulated again, after "Understanding Stragglers in Large
//! Model Training Using What-if Analysis" (OSDI 2025): with recorded durations, with ordinary ones, and with one part
//! of the slowness removed at a time ([`WhatIf`] holds the published figures under their published names). The weight
//! of each part decides the cause ([`CauseKind`]): slow worker, slow stage, data imbalance, communication, pauses.
//!
//! Terms: a *worker* is one stage of one data-parallel rank, tensor-parallel ranks folded; a *pass* is the forward or
//! backward computation of one microbatch through one model chunk; a *transfer* is communication without the waiting.
//!
//! Invariants: no input causes a panic; unusable input becomes a problem with file, row and field (RG-11); the order of
//! rows and the numbering of ranks and steps affect only names.
//!
//! Absent on purpose: rated speeds of network and hardware. If all links or all workers are equally slow, none stands
//! out; the report states this and does not guess.

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
mod rank_course;
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

pub use meta::{TraceMetadata, read_meta};
pub use operation::{OpType, StepTiming, TimingFile, TraceOperation};
pub use problem::{InputProblem, ProblemList};
pub use reading::read_timings;
pub use report::{CauseKind, CauseLocation, SlownessCause, SlownessReport, StepTime};
pub use whatif::{PartEffect, WhatIf};

/// Finds the cause of a slow job. `name` identifies the job in the report, `problems` are those of reading; `meta` is
/// optional, because sizes follow from the trace.
pub fn analyse(
    name: &str,
    timings: &TimingFile,
    meta: Option<&TraceMetadata>,
    problems: ProblemList,
) -> SlownessReport {
    match timings {
        TimingFile::Operations(rows) => verdict::of_operations(name, rows, meta, problems),
        TimingFile::Steps(rows) => per_step::of_steps(name, rows, problems),
    }
}
