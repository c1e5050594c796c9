//! Origin of a chunk: the shard with the file that stores its bytes, either the shard itself or another one that has a
//! chunk with equal bytes.

use std::collections::BTreeMap;

use rankguard_model::{Generation, Rank, Step};
use serde::{Deserialize, Serialize};

use crate::chunk::TENSOR_ALIGN;
use crate::{CheckpointId, ChunkDigest, ChunkLayout, MAX_WORLD_SIZE, ShardIndex, ShardLayoutError};

/// Maximum number of shards that one shard borrows from.
pub const MAX_ORIGINS: usize = 1 << 16;

/// Maximum offset in a file, bytes. Equals the maximum image length, so that sums of the two fit in 64 bits.
const MAX_PLACE: u64 = 1 << 48;

/// Identity of a shard with a file that stores chunks. A shard borrows chunks from an earlier checkpoint of the same
/// job (delta) or from another rank of the same checkpoint (equal tensors of data-parallel ranks).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkOrigin {
    /// Step of the checkpoint.
    pub step: Step,
    /// Generation of the checkpoint.
    pub generation: Generation,
    /// Rank that wrote the shard.
    pub rank: Rank,
}

impl ChunkOrigin {
    /// Creates the origin for the shard of `rank` in `checkpoint`.
    pub fn new(checkpoint: CheckpointId, rank: Rank) -> Self {
        Self {
            step: checkpoint.step,
            generation: checkpoint.generation,
            rank,
        }
    }

    /// Returns the id of the checkpoint.
    pub fn id(&self) -> CheckpointId {
        CheckpointId {
            step: self.step,
            generation: self.generation,
        }
    }
}

/// Run of consecutive chunks that are stored consecutively in the file of another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BorrowedRun {
    /// Index of the first chunk of the run in the borrowing shard.
    pub first: u32,
    /// Number of chunks, at least 1.
    pub count: u32,
    /// Shard that stores the run, as a position in [`ShardIndex::origins`].
    pub origin: u32,
    /// Byte offset of the first chunk in that file; each further chunk begins at the next multiple of [`TENSOR_ALIGN`].
    pub at: u64,
}

/// Location of one chunk in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPlace {
    /// Shard that stores the chunk in its file.
    pub file: ChunkOrigin,
    /// Byte offset in that file.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// Chunks that are already in the store, by digest and length; a shard can borrow them instead of storing them again.
#[derive(Debug, Clone, Default)]
pub struct KnownChunks {
    places: BTreeMap<(ChunkDigest, u32), (ChunkOrigin, u64)>,
}

impl KnownChunks {
    /// Adds every chunk of `index`, own or borrowed, at the place that stores it. Of equal chunks the first added is
    /// retained. `index` must be valid.
    pub fn add(&mut self, index: &ShardIndex) {
        for (digest, place) in index.chunks.iter().zip(index.places()) {
            self.places
                .entry((*digest, place.bytes))
                .or_insert((place.file, place.at));
        }
    }

    /// Returns the number of distinct chunks (digest and length).
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if no chunk is known.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl ShardIndex {
    /// Returns the location of every chunk, in image order. Own chunks are stored in this order, each at the next
    /// multiple of [`TENSOR_ALIGN`], so the file of a shard that borrows nothing is identical to its image. Panics if a
    /// run refers to no origin: the index must be valid.
    pub fn places(&self) -> Vec<ChunkPlace> {
        let own = self.own();
        let mut places = Vec::with_capacity(self.chunks.len());
        let mut end = 0u64;
        let mut next = 0u64;
        let mut runs = self.borrowed.iter().peekable();
        for (chunk, range) in (0u32..).zip(self.chunking().ranges()) {
            let bytes = range.end - range.start;
            while runs.next_if(|run| run.first + run.count <= chunk).is_some() {}
            let (file, at) = match runs.peek().filter(|run| run.first <= chunk) {
                Some(run) => {
                    let at = if run.first == chunk { run.at } else { next };
                    next = (at + bytes).next_multiple_of(TENSOR_ALIGN);
                    (self.origins[run.origin as usize], at)
                }
                None => {
                    let at = end.next_multiple_of(TENSOR_ALIGN);
                    end = at + bytes;
                    (own, at)
                }
            };
            places.push(ChunkPlace {
                file,
                at,
                bytes: bytes as u32,
            });
        }
        places
    }

    /// Returns the origin of the chunks that this shard stores itself.
    pub fn own(&self) -> ChunkOrigin {
        ChunkOrigin::new(self.id(), self.rank)
    }

    /// Returns the length of the shard's own file, bytes.
    pub fn file_bytes(&self) -> u64 {
        let own = self.own();
        let places = self.places();
        let last = places.iter().rev().find(|place| place.file == own);
        last.map_or(0, |place| place.at + u64::from(place.bytes))
    }

    /// Returns an index of the same image that borrows every known chunk and stores the others itself. Known chunks in
    /// the file of this shard are not borrowed. Earlier origins and runs of the index are replaced.
    pub fn borrowing(&self, known: &KnownChunks) -> Self {
        let own = self.own();
        let mut origins = BTreeMap::new();
        let mut index = Self {
            origins: Vec::new(),
            borrowed: Vec::new(),
            ..self.clone()
        };
        let mut next = 0u64;
        for ((chunk, range), digest) in (0u32..).zip(self.chunking().ranges()).zip(&self.chunks) {
            let bytes = range.end - range.start;
            let place = known.places.get(&(*digest, bytes as u32));
            let Some((file, at)) = place.filter(|(file, _)| *file != own) else {
                continue;
            };
            let origin = *origins.entry(*file).or_insert_with(|| {
                index.origins.push(*file);
                index.origins.len() as u32 - 1
            });
            match index.borrowed.last_mut() {
                Some(run) if run.origin == origin && run.first + run.count == chunk && next == *at => run.count += 1,
                _ => index.borrowed.push(BorrowedRun {
                    first: chunk,
                    count: 1,
                    origin,
                    at: *at,
                }),
            }
            next = (at + bytes).next_multiple_of(TENSOR_ALIGN);
        }
        index
    }
}

/// Validates origins and borrowed runs. Refuses more than [`MAX_ORIGINS`] origins, an origin that is the shard itself,
/// of a newer checkpoint or of an impossible rank, and runs that are empty, out of order, past the last chunk, without
/// origin, or at an unaligned or too large offset.
pub(crate) fn check(index: &ShardIndex, chunking: &ChunkLayout) -> Result<(), ShardLayoutError> {
    let origins = index.origins.len();
    if origins > MAX_ORIGINS {
        return Err(ShardLayoutError::OriginCount { found: origins });
    }
    for origin in &index.origins {
        let another = origin.id() < index.id() || origin.id() == index.id() && origin.rank != index.rank;
        if !another || origin.rank.0 >= MAX_WORLD_SIZE {
            return Err(ShardLayoutError::Origin {
                checkpoint: origin.id(),
                rank: origin.rank,
            });
        }
    }
    let mut end = 0u32;
    for run in &index.borrowed {
        let sound = run.first >= end
            && run.count > 0
            && run
                .first
                .checked_add(run.count)
                .is_some_and(|end| end <= chunking.count())
            && (run.origin as usize) < origins
            && run.at <= MAX_PLACE
            && run.at.is_multiple_of(TENSOR_ALIGN);
        if !sound {
            return Err(ShardLayoutError::Borrowed { first: run.first });
        }
        end = run.first + run.count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rankguard_model::JobId;

    use super::*;
    use crate::{Dtype, TensorBox};

    const RAMP: [u8; 130] = {
        let mut bytes = [0; 130];
        let mut at = 0;
        while at < bytes.len() {
            bytes[at] = at as u8;
            at += 1;
        }
        bytes
    };

    /// Returns a shard at step `step` with one tensor per byte string; chunks are 64 bytes.
    fn shard(step: u64, rank: u32, tensors: &[&[u8]]) -> ShardIndex {
        let boxes = tensors
            .iter()
            .map(|bytes| TensorBox::whole("t", Dtype::U8, vec![bytes.len() as u64]));
        let (entries, image_bytes) = ShardIndex::lay_out(boxes);
        let chunks = tensors.iter().flat_map(|bytes| bytes.chunks(64).map(ChunkDigest::of));
        let mut index = ShardIndex::new(
            &JobId::from("demo"),
            CheckpointId {
                step: Step(step),
                generation: Generation(1),
            },
        );
        (index.rank, index.world_size, index.chunk_bytes) = (Rank(rank), 4, 64);
        (index.tensors, index.image_bytes) = (entries, image_bytes.expect("small"));
        index.set_chunks(chunks.collect());
        index.check().expect("sound");
        index
    }

    fn known(indexes: &[&ShardIndex]) -> KnownChunks {
        let mut known = KnownChunks::default();
        indexes.iter().for_each(|index| known.add(index));
        known
    }

    fn stored_chunks(index: &ShardIndex) -> Vec<(u64, u32, u64)> {
        let places = index.places().into_iter();
        places
            .map(|place| (place.file.step.0, place.file.rank.0, place.at))
            .collect()
    }

    #[test]
    fn what_borrows_nothing_lies_as_its_image_does() {
        let index = shard(1, 0, &[&RAMP, &[2; 5]]);
        let image: Vec<u64> = index.chunking().ranges().map(|range| range.start).collect();
        assert_eq!(index.places().iter().map(|place| place.at).collect::<Vec<_>>(), image);
        assert_eq!(index.file_bytes(), index.image_bytes);
    }

    #[test]
    fn only_what_is_new_lies_in_the_own_file_and_origins_do_not_chain() {
        let first = shard(1, 0, &[&RAMP, &[2; 64], &[3; 64]]);
        let second = shard(2, 0, &[&RAMP, &[9; 64], &[3; 64]]).borrowing(&known(&[&first]));
        second.check().expect("sound");
        assert_eq!(
            stored_chunks(&second),
            [(1, 0, 0), (1, 0, 64), (1, 0, 128), (2, 0, 0), (1, 0, 256)]
        );
        assert_eq!((second.borrowed.len(), second.file_bytes()), (2, 64));
        // A third checkpoint borrows from the files themselves, not through the second.
        let third = shard(3, 0, &[&RAMP, &[9; 64], &[4; 1]]).borrowing(&known(&[&second]));
        assert_eq!(
            stored_chunks(&third),
            [(1, 0, 0), (1, 0, 64), (1, 0, 128), (2, 0, 0), (3, 0, 0)]
        );
        assert_eq!(ShardIndex::from_bytes(&third.to_bytes()), Ok(third));
    }

    #[test]
    fn a_replica_borrows_from_its_primary_and_nobody_from_himself() {
        let primary = shard(1, 0, &[&[7; 100]]);
        let replica = shard(1, 1, &[&[7; 100]]).borrowing(&known(&[&primary]));
        assert_eq!(
            (stored_chunks(&replica), replica.file_bytes()),
            (vec![(1, 0, 0), (1, 0, 64)], 0)
        );
        assert_eq!(primary.borrowing(&known(&[&primary])), primary);
        assert_eq!(replica.borrowing(&KnownChunks::default()), shard(1, 1, &[&[7; 100]]));
    }

    #[test]
    fn equal_bytes_of_another_length_are_another_chunk() {
        let first = shard(1, 0, &[&[0; 64]]);
        let second = shard(2, 0, &[&[0; 63]]).borrowing(&known(&[&first]));
        assert!(second.borrowed.is_empty());
    }

    #[test]
    fn runs_and_origins_that_make_no_sense_are_refused() {
        let first = shard(1, 0, &[&RAMP]);
        let sound = shard(2, 0, &[&RAMP]).borrowing(&known(&[&first]));
        let broken = |change: fn(&mut ShardIndex)| {
            let mut index = sound.clone();
            change(&mut index);
            ShardIndex::from_bytes(&index.to_bytes()).expect_err("makes no sense")
        };
        for change in [
            |i: &mut ShardIndex| i.borrowed[0].count = 4,
            |i: &mut ShardIndex| i.borrowed[0].count = u32::MAX,
            |i: &mut ShardIndex| i.borrowed[0].origin = 1,
            |i: &mut ShardIndex| i.borrowed[0].at = 1,
            |i: &mut ShardIndex| i.borrowed[0].at = u64::MAX - 63,
            |i: &mut ShardIndex| i.borrowed.push(i.borrowed[0]),
        ] {
            assert!(matches!(broken(change), ShardLayoutError::Borrowed { .. }));
        }
        for change in [
            |i: &mut ShardIndex| i.origins[0] = i.own(),
            |i: &mut ShardIndex| i.origins[0].step = Step(3),
            |i: &mut ShardIndex| i.origins[0].rank = Rank(u32::MAX),
        ] {
            assert!(matches!(broken(change), ShardLayoutError::Origin { .. }));
        }
    }
}
