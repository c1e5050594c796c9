//! Planning time of a restore.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use rankguard_checkpoint::format::{CheckpointId, Dtype, ShardIndex, TensorBox, plan};
use rankguard_model::{Generation, JobId, Rank, Step};

use super::JOB;

/// Times the plan of one rank out of 768 for 10,000 tensors saved by 512 ranks. Every rank repeats the same work, so
/// one rank is measured.
pub(super) fn plan_seconds() -> io::Result<f64> {
    const TENSORS: u64 = 10_000;
    const ROWS: u64 = 1536;
    let part = |tensor: u64, rank: u64, world: u64| {
        let share = ROWS / world;
        let rows = rank * share..(rank + 1) * share;
        TensorBox::rows(format!("layers.{tensor}.weight"), Dtype::Bf16, vec![ROWS, 8], rows)
    };
    let id = CheckpointId {
        step: Step(1),
        generation: Generation(1),
    };
    let shard = |rank: u64| {
        let (tensors, end) = ShardIndex::lay_out((0..TENSORS).map(|tensor| part(tensor, rank, 512)));
        ShardIndex {
            rank: Rank(rank as u32),
            world_size: 512,
            image_bytes: end.unwrap_or(0),
            tensors,
            ..ShardIndex::new(&JobId::from(JOB), id)
        }
    };
    let indexes: Vec<ShardIndex> = (0..512).map(shard).collect();
    let wanted: Vec<TensorBox> = (0..TENSORS).map(|tensor| part(tensor, 300, 768)).collect();
    let start = Instant::now();
    black_box(plan(&wanted, &indexes).map_err(io::Error::other)?);
    Ok(start.elapsed().as_secs_f64())
}
