//! The one place that knows how a shard is written and what a planner wants to be told.

use rankguard_checkpoint::format::{
    Chunking, DEFAULT_CHUNK_BYTES, Digest, ShardDraft, ShardIndex, ShardLayoutError, TensorBox, TensorEntry, crc32c,
};
use rankguard_checkpoint::{ImageSource, Store, StoreError};
use rankguard_model::{Generation, JobId, Rank, ShardSeal, Step};
use serde_json::Value;

use crate::foreign::Part;
use crate::{ExchangeError, ImportOf};

/// Boxes back to back.
pub(crate) fn lay_out(boxes: &[TensorBox]) -> Vec<TensorEntry> {
    ShardDraft::lay_out(boxes.iter().cloned()).0
}

/// Parts as the planner takes them; nothing else of the index means anything.
pub(crate) fn as_index(parts: &[Part]) -> ShardIndex {
    let entry = |part: &Part| TensorEntry {
        boxed: part.boxed.clone(),
        at: part.at,
    };
    ShardIndex {
        job: JobId::from("foreign"),
        step: Step(0),
        generation: Generation(0),
        rank: Rank(0),
        world_size: 1,
        chunk_bytes: DEFAULT_CHUNK_BYTES,
        image_bytes: 0,
        tensors: parts.iter().map(entry).collect(),
        chunks: Vec::<Digest>::new(),
        state: Value::Null,
    }
}

/// Reads the image twice: once for its checksums, and once to write what still has them.
pub(crate) fn write(
    store: &Store,
    of: &ImportOf<'_>,
    rank: Rank,
    boxes: Vec<TensorBox>,
    state: Value,
    image: &dyn ImageSource,
) -> Result<ShardSeal, ExchangeError> {
    let (tensors, end) = ShardDraft::lay_out(boxes);
    let image_bytes = end.unwrap_or(u64::MAX);
    let chunk_bytes = DEFAULT_CHUNK_BYTES;
    let chunking = Chunking::new(image_bytes, chunk_bytes).ok_or(ShardLayoutError::Chunking {
        image_bytes,
        chunk_bytes,
    })?;
    let mut crcs = Vec::with_capacity(chunking.count() as usize);
    let mut buffer = Vec::new();
    for (chunk, range) in chunking.ranges().enumerate() {
        buffer.resize((range.end - range.start) as usize, 0);
        let read = image.read_at(range.start, &mut buffer);
        read.map_err(|source| StoreError::ImageUnreadable {
            rank,
            chunk: chunk as u32,
            source,
        })?;
        crcs.push(crc32c(&buffer));
    }
    let draft = ShardDraft {
        job: of.job.clone(),
        step: of.id.step,
        generation: of.id.generation,
        rank,
        world_size: of.ranks,
        chunk_bytes,
        image_bytes,
        tensors,
        crcs,
        state,
    };
    Ok(store.write_shard(&draft, image)?.seal)
}
