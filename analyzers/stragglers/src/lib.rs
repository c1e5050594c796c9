//! Operation timings in, who slows a job down and by how much out.
mod factors;
mod graph;
mod job;
mod meta;
mod operation;
mod p2p;
mod parquet_file;
mod parts;
mod places;
mod problem;
mod reading;
mod report;
mod simulate;
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

/// x
pub fn analyse(name: &str, timings: &Timings, meta: Option<&Meta>, problems: Problems) -> Report {
    match timings {
        Timings::Operations(rows) => verdict::of_operations(name, rows, meta, problems),
        Timings::Steps(_) => Report::empty(name, &problems, ""),
    }
}
