//! Operation timings in, who slows a job down and by how much out.
mod graph;
mod job;
mod meta;
mod operation;
mod p2p;
mod parquet_file;
mod problem;
mod reading;
mod simulate;
mod table;
mod text_file;
mod whatif;

pub use meta::{Meta, read_meta};
pub use operation::{OpType, Operation, StepTiming, Timings};
pub use problem::{Problem, Problems};
pub use reading::read_timings;
pub use whatif::{Effect, WhatIf};

/// x
pub fn what_if(rows: &[Operation], meta: Option<&Meta>, problems: &mut Problems) -> Option<WhatIf> {
    let job = job::align("trace", rows, problems)?;
    let graph = graph::build(&job, meta.is_some_and(|m| m.dsp_size.unwrap_or(1) > 1)).ok()?;
    Some(whatif::Bench::new(&job, &graph).what_if())
}
