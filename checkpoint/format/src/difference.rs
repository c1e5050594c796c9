//! Detection of tensors that ranks saved with different content under one name, from the digests in their indexes; no
//! image is read.
//!
//! A rank of the same world size restores its own part of such a tensor; any other restore has to choose one of the
//! parts, which the caller must allow. Differences are not recorded in the manifest: the indexes of every checkpoint,
//! also of earlier versions, hold the digests.

use std::collections::BTreeMap;
use std::fmt;

use rankguard_model::Rank;

use crate::{ChunkDigest, Dtype, ShardIndex, TensorEntry};

/// Reason why parts of one tensor are not known to be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceCause {
    /// Equal boxes hold different bytes.
    Content,
    /// Element types or global shapes differ.
    Shape,
    /// Equal boxes are cut into chunks of different sizes, so that digests cannot be compared.
    Chunking,
    /// Boxes overlap without being equal, so that digests cannot be compared.
    Overlap,
}

/// Tensor that ranks saved with different or incomparable content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorDifference {
    /// Full name of the tensor.
    pub name: String,
    /// Kind of difference.
    pub cause: DifferenceCause,
    /// First two ranks that differ.
    pub ranks: (Rank, Rank),
}

impl fmt::Display for DifferenceCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Content => "different content",
            Self::Shape => "different shapes or types",
            Self::Chunking => "chunks of different sizes, which cannot be compared",
            Self::Overlap => "parts that overlap, which cannot be compared",
        })
    }
}

/// Finds the tensors that differ between ranks, sorted by name. Costs one pass over the tensor tables and digests.
pub fn tensor_differences(indexes: &[ShardIndex]) -> Vec<TensorDifference> {
    let mut tensors: BTreeMap<&str, SavedTensor<'_>> = BTreeMap::new();
    for index in indexes {
        let chunking = index.chunking();
        for (place, entry) in index.tensors.iter().enumerate() {
            let chunks = chunking.chunks_of(place);
            let part = SavedPart {
                rank: index.rank,
                chunk_bytes: index.chunk_bytes,
                digests: &index.chunks[chunks.start as usize..chunks.end as usize],
            };
            let seen = tensors
                .entry(&entry.boxed.name)
                .or_insert_with(|| SavedTensor::new(entry, index.rank));
            seen.add(entry, part);
        }
    }
    let found = tensors.into_iter().filter_map(|(name, seen)| {
        seen.found.map(|(cause, ranks)| TensorDifference {
            name: name.to_owned(),
            cause,
            ranks,
        })
    });
    found.collect()
}

/// Part of a tensor as one rank saved it.
#[derive(Clone, Copy)]
struct SavedPart<'a> {
    rank: Rank,
    chunk_bytes: u32,
    digests: &'a [ChunkDigest],
}

/// Parts of one tensor collected so far.
struct SavedTensor<'a> {
    dtype: Dtype,
    global_shape: &'a [u64],
    first: Rank,
    boxes: BTreeMap<(&'a [u64], &'a [u64]), SavedPart<'a>>,
    /// Sum of the elements of all distinct boxes.
    elements: u128,
    found: Option<(DifferenceCause, (Rank, Rank))>,
}

impl<'a> SavedTensor<'a> {
    fn new(entry: &'a TensorEntry, first: Rank) -> Self {
        Self {
            dtype: entry.boxed.dtype,
            global_shape: &entry.boxed.global_shape,
            first,
            boxes: BTreeMap::new(),
            elements: 0,
            found: None,
        }
    }

    fn add(&mut self, entry: &'a TensorEntry, part: SavedPart<'a>) {
        if self.found.is_some_and(|(cause, _)| cause <= DifferenceCause::Shape) {
            return;
        }
        let boxed = &entry.boxed;
        if (boxed.dtype, boxed.global_shape.as_slice()) != (self.dtype, self.global_shape) {
            self.found = Some((DifferenceCause::Shape, (self.first, part.rank)));
            return;
        }
        let key = (boxed.offset.as_slice(), boxed.shape.as_slice());
        let difference = match self.boxes.get(&key) {
            Some(other) => compared(other, &part).map(|cause| (cause, (other.rank, part.rank))),
            None => {
                self.boxes.insert(key, part);
                self.elements = self.elements.saturating_add(volume(&boxed.shape));
                let overlaps = self.elements > volume(self.global_shape);
                overlaps.then_some((DifferenceCause::Overlap, (self.first, part.rank)))
            }
        };
        if let Some(found) = difference
            && self.found.is_none_or(|(cause, _)| found.0 < cause)
        {
            self.found = Some(found);
        }
    }
}

/// Compares two equal boxes. Every tensor starts a new chunk, so tensors of at most one chunk are comparable even if
/// the chunk sizes differ.
fn compared(one: &SavedPart<'_>, other: &SavedPart<'_>) -> Option<DifferenceCause> {
    let single = one.digests.len() <= 1 && other.digests.len() <= 1;
    if !single && one.chunk_bytes != other.chunk_bytes {
        return Some(DifferenceCause::Chunking);
    }
    (one.digests != other.digests).then_some(DifferenceCause::Content)
}

fn volume(shape: &[u64]) -> u128 {
    shape
        .iter()
        .fold(1, |all: u128, side| all.saturating_mul(u128::from(*side)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CheckpointId, TensorBox};
    use rankguard_model::{Generation, JobId, Step};

    /// Returns the index of a rank with these parts; each part is filled with one byte value.
    fn index(rank: u32, chunk_bytes: u32, parts: &[(TensorBox, u8)]) -> ShardIndex {
        let id = CheckpointId {
            step: Step(1),
            generation: Generation(1),
        };
        let (tensors, end) = ShardIndex::lay_out(parts.iter().map(|(boxed, _)| boxed.clone()));
        let mut image = vec![0; end.expect("small") as usize];
        for (entry, (_, byte)) in tensors.iter().zip(parts) {
            image[entry.at as usize..][..entry.boxed.bytes().expect("small") as usize].fill(*byte);
        }
        let mut index = ShardIndex {
            rank: Rank(rank),
            world_size: 8,
            chunk_bytes,
            image_bytes: image.len() as u64,
            tensors,
            ..ShardIndex::new(&JobId::from("demo"), id)
        };
        index.digest_image(&image);
        index
    }

    fn whole(name: &str, bytes: u64) -> TensorBox {
        TensorBox::whole(name, Dtype::U8, vec![bytes])
    }

    fn causes(indexes: &[ShardIndex]) -> Vec<(String, DifferenceCause, (u32, u32))> {
        tensor_differences(indexes)
            .into_iter()
            .map(|found| (found.name, found.cause, (found.ranks.0.0, found.ranks.1.0)))
            .collect()
    }

    #[test]
    fn equal_tensors_are_equal_wherever_they_lie() {
        let one = index(0, 64, &[(whole("a", 10), 1), (whole("b", 200), 2), (whole("e", 0), 0)]);
        let other = index(1, 64, &[(whole("e", 0), 0), (whole("b", 200), 2), (whole("a", 10), 1)]);
        assert_eq!(causes(&[one, other]), []);
    }

    #[test]
    fn different_content_is_found_between_the_first_ranks_that_differ() {
        let shards = [(0, 1), (1, 1), (2, 9)].map(|(rank, byte)| index(rank, 64, &[(whole("a", 100), byte)]));
        assert_eq!(causes(&shards), [("a".to_owned(), DifferenceCause::Content, (0, 2))]);
    }

    #[test]
    fn chunk_sizes_matter_only_where_a_tensor_has_several_chunks() {
        let of = |rank, chunk| index(rank, chunk, &[(whole("long", 100), 1), (whole("short", 60), 1)]);
        assert_eq!(
            causes(&[of(0, 64), of(1, 128)]),
            [("long".to_owned(), DifferenceCause::Chunking, (0, 1))]
        );
    }

    #[test]
    fn parts_of_one_tensor_do_not_differ_unless_they_overlap() {
        let rows = |range| TensorBox::rows("a", Dtype::U8, vec![10], range);
        let halves = [index(0, 64, &[(rows(0..5), 1)]), index(1, 64, &[(rows(5..10), 2)])];
        assert_eq!(causes(&halves), []);
        let overlapping = [index(0, 64, &[(rows(0..6), 1)]), index(1, 64, &[(rows(5..10), 2)])];
        assert_eq!(
            causes(&overlapping),
            [("a".to_owned(), DifferenceCause::Overlap, (0, 1))]
        );
        let other_shape = [
            index(0, 64, &[(whole("a", 10), 1)]),
            index(1, 64, &[(whole("a", 11), 1)]),
        ];
        assert_eq!(causes(&other_shape), [("a".to_owned(), DifferenceCause::Shape, (0, 1))]);
    }
}
