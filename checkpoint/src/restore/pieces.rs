//! Plan of a restore: the parts to read from each chunk, and their destinations.

use std::collections::BTreeMap;
use std::ops::Range;

use rankguard_model::Rank;

use super::{RankRestore, ReadAttempt, RestoreError, own_tensors};
use crate::format::{ChunkLayout, ChunkPlace, OwnTensors, ShardIndex, TensorBox, plan_own};
use crate::image::SinkRegion;
use crate::source::ChunkId;

/// Chunk with requested bytes.
pub(super) struct RequestedChunk<'a> {
    pub(super) id: ChunkId,
    pub(super) places: ChunkDestinations<'a>,
}

/// Destinations of a chunk, and the attempts to read it so far.
pub(super) struct ChunkDestinations<'a> {
    /// Offset within the chunk, and destination, of each part.
    pub(super) pieces: Vec<(usize, SinkRegion<'a>)>,
    /// Failed attempts to read the chunk.
    pub(super) tries: Vec<ReadAttempt>,
    /// Names of the sources that stored the good copy.
    pub(super) healed: Vec<String>,
}

/// Part of a chunk and its range in a destination.
struct ChunkPart {
    rank: Rank,
    chunk: u32,
    from: usize,
    to: Range<u64>,
}

/// Layout of one image.
struct ImageLayout<'a> {
    index: &'a ShardIndex,
    chunking: ChunkLayout,
    places: Vec<ChunkPlace>,
}

/// Returns every chunk with requested bytes, sorted by rank and chunk.
pub(super) fn wanted_chunks<'a>(
    requests: &'a mut [RankRestore<'_>],
    indexes: &[ShardIndex],
) -> Result<Vec<RequestedChunk<'a>>, RestoreError> {
    let image = |index| ImageLayout {
        index,
        chunking: ShardIndex::chunking(index),
        places: ShardIndex::places(index),
    };
    let images: BTreeMap<Rank, ImageLayout<'_>> = indexes.iter().map(|index| (index.rank, image(index))).collect();
    let mut wanted: BTreeMap<(Rank, u32), RequestedChunk<'a>> = BTreeMap::new();
    for request in requests {
        let own = own_tensors(request.reader, indexes);
        let mut parts = parts(request.wanted, indexes, &images, &own)?;
        parts.sort_by_key(|part| part.to.start);
        let ranges: Vec<Range<u64>> = parts.iter().map(|part| part.to.clone()).collect();
        for (part, piece) in parts.into_iter().zip(request.out.split(&ranges)) {
            let rank = part.rank;
            let chunk = part.chunk;
            let entry = wanted.entry((rank, chunk)).or_insert_with(|| RequestedChunk {
                id: images[&rank].chunk_id(chunk),
                places: ChunkDestinations {
                    pieces: Vec::new(),
                    tries: Vec::new(),
                    healed: Vec::new(),
                },
            });
            entry.places.pieces.push((part.from, piece));
        }
    }
    Ok(wanted.into_values().collect())
}

impl ImageLayout<'_> {
    fn chunk_id(&self, chunk: u32) -> ChunkId {
        let range = self.chunking.range(chunk).expect("a plan stays within checked images");
        ChunkId {
            job: self.index.job.clone(),
            checkpoint: self.index.id(),
            rank: self.index.rank,
            chunk,
            at: range.start,
            place: self.places[chunk as usize],
            digest: self.index.chunks[chunk as usize],
        }
    }
}

/// Plans one request; parts are split at chunk and box boundaries.
fn parts(
    wanted: &[TensorBox],
    indexes: &[ShardIndex],
    images: &BTreeMap<Rank, ImageLayout<'_>>,
    own: &OwnTensors,
) -> Result<Vec<ChunkPart>, RestoreError> {
    let ends: Vec<u64> = wanted
        .iter()
        .scan(0u64, |end, boxed| {
            *end += boxed.bytes().unwrap_or(0);
            Some(*end)
        })
        .collect();
    let mut parts = Vec::new();
    for copy in plan_own(wanted, indexes, own)? {
        let chunking = &images[&copy.shard_rank].chunking;
        let mut done = 0;
        let mut chunk = chunking.chunk_holding(copy.source_at);
        while done < copy.bytes {
            let at = copy.source_at + done;
            let to = copy.dest_at + done;
            let range = chunking.range(chunk).expect("a plan stays within checked images");
            let box_end = ends[ends.partition_point(|end| *end <= to)];
            let bytes = (copy.bytes - done).min(range.end - at).min(box_end - to);
            parts.push(ChunkPart {
                rank: copy.shard_rank,
                chunk,
                from: (at - range.start) as usize,
                to: to..to + bytes,
            });
            done += bytes;
            chunk += u32::from(at + bytes == range.end);
        }
    }
    Ok(parts)
}
