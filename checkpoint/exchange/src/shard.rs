//! Layout and writing of imported shards, and the index form that the reshard planner reads.

use rankguard_checkpoint::format::{
    CheckpointId, ChunkDigest, ChunkLayout, ShardIndex, ShardLayoutError, TensorBox, TensorEntry, chunk_bytes_for,
};
use rankguard_checkpoint::{ImageSource, Store, StoreError};
use rankguard_model::{Generation, JobId, Rank, ShardSeal, Step};
use serde_json::Value;

use crate::foreign::TensorPart;
use crate::{ExchangeError, ImportTarget};

/// Lays boxes out back to back, in the order of an image.
pub(crate) fn lay_out(boxes: &[TensorBox]) -> Vec<TensorEntry> {
    ShardIndex::lay_out(boxes.iter().cloned()).0
}

/// Converts parts to an index for the planner; only its tensor entries are meaningful.
pub(crate) fn as_index(parts: &[TensorPart]) -> ShardIndex {
    let nothing = CheckpointId {
        step: Step(0),
        generation: Generation(0),
    };
    let entry = |part: &TensorPart| TensorEntry {
        boxed: part.boxed.clone(),
        at: part.at,
        replica: 0,
    };
    ShardIndex {
        tensors: parts.iter().map(entry).collect(),
        ..ShardIndex::new(&JobId::from("foreign"), nothing)
    }
}

/// Reads the image once and returns its index with all digests.
pub(crate) fn index_of(
    of: &ImportTarget<'_>,
    rank: Rank,
    boxes: Vec<TensorBox>,
    state: Value,
    image: &dyn ImageSource,
) -> Result<ShardIndex, ExchangeError> {
    let (tensors, end) = ShardIndex::lay_out(boxes);
    let image_bytes = end.unwrap_or(u64::MAX);
    let chunk_bytes = chunk_bytes_for(image_bytes);
    let chunking = ChunkLayout::new(&tensors, chunk_bytes).ok_or(ShardLayoutError::Chunking {
        image_bytes,
        chunk_bytes,
    })?;
    let mut digests = Vec::with_capacity(chunking.count() as usize);
    let mut buffer = Vec::new();
    for (chunk, range) in (0u32..).zip(chunking.ranges()) {
        buffer.resize((range.end - range.start) as usize, 0);
        let read = image.read_at(range.start, &mut buffer);
        read.map_err(|source| StoreError::ImageUnreadable { rank, chunk, source })?;
        digests.push(ChunkDigest::of(&buffer));
    }
    let mut index = ShardIndex {
        rank,
        world_size: of.ranks,
        chunk_bytes,
        image_bytes,
        tensors,
        state,
        ..ShardIndex::new(of.job, of.id)
    };
    index.set_chunks(digests);
    Ok(index)
}

/// Reads the image twice: once for its digests, and once to write the bytes, which must still match
/// them.
pub(crate) fn write(
    store: &Store,
    of: &ImportTarget<'_>,
    rank: Rank,
    boxes: Vec<TensorBox>,
    state: Value,
    image: &dyn ImageSource,
) -> Result<ShardSeal, ExchangeError> {
    let index = index_of(of, rank, boxes, state, image)?;
    Ok(store.write_shard(&index, image)?.seal)
}
