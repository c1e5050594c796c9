//! What lies where in one rank's image, and the digest of every chunk of it.

use rankguard_model::{Generation, JobId, Rank, Step};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::{self, EnvelopeError};
use crate::{BoxError, CheckpointId, Chunking, Digest, MAX_WORLD_SIZE, NameError, TensorBox, check_job};

const MAGIC: &str = "rankguard-shard-index";

/// Longest index that a reader accepts: a million chunks and a hundred thousand tensors fit.
pub const MAX_INDEX_BYTES: usize = 128 << 20;

/// Longest state of one rank, as JSON text. State is for counters, seeds and ledgers; what is large is a tensor.
pub const MAX_STATE_BYTES: usize = 16 << 20;

/// Most tensors in one image.
pub const MAX_TENSORS: usize = 1 << 20;

/// A tensor's part and its place in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorEntry {
    /// The part.
    pub boxed: TensorBox,
    /// Its first byte in the image. Entries may share bytes (tied weights).
    pub at: u64,
}

/// The index of one rank's shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardIndex {
    /// Its job.
    pub job: JobId,
    /// Step of the image.
    pub step: Step,
    /// The generation that wrote it.
    pub generation: Generation,
    /// The rank that wrote it.
    pub rank: Rank,
    /// Ranks in that generation.
    pub world_size: u32,
    /// Size of a chunk, bytes.
    pub chunk_bytes: u32,
    /// Size of the image, bytes.
    pub image_bytes: u64,
    /// What lies where.
    pub tensors: Vec<TensorEntry>,
    /// Digest of each chunk, in order.
    pub chunks: Vec<Digest>,
    /// The rank's small state.
    pub state: Value,
}

/// Why a description of an image contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ShardLayoutError {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Box(#[from] BoxError),
    #[error("rank {rank} is outside a world of {world_size}; worlds have 1 to {MAX_WORLD_SIZE} ranks")]
    Rank { rank: Rank, world_size: u32 },
    #[error("cannot cut {image_bytes} bytes into chunks of {chunk_bytes}")]
    Chunking { image_bytes: u64, chunk_bytes: u32 },
    #[error("names {found} chunks where the image has {expected}")]
    ChunkCount { expected: u32, found: usize },
    #[error("names {found} tensors, more than {MAX_TENSORS}")]
    TensorCount { found: usize },
    #[error("tensor {name} lies at byte {at}, beyond the image's {image_bytes}")]
    TensorOutside { name: String, at: u64, image_bytes: u64 },
    #[error("has {bytes} bytes of state, more than {MAX_STATE_BYTES}; keep large data in tensors")]
    State { bytes: usize },
}

impl ShardIndex {
    /// Which checkpoint it belongs to.
    pub fn id(&self) -> CheckpointId {
        CheckpointId {
            step: self.step,
            generation: self.generation,
        }
    }

    /// The content of an `.index` file.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(MAGIC, self)
    }

    /// Reads an `.index` file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ShardLayoutError> {
        let index: Self = envelope::open(MAGIC, MAX_INDEX_BYTES, bytes)?;
        index.check()?;
        Ok(index)
    }

    /// The digest by which a manifest names this index. For an index that was read, take [`Digest::of`] the bytes
    /// that were read: they may hold fields this program does not know.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }

    /// How the image is cut.
    pub fn chunking(&self) -> Chunking {
        Chunking::new(self.image_bytes, self.chunk_bytes).expect("an index is checked when read or built")
    }

    /// Names of the tensors that have bytes in `chunk`, in image order: whom damage to it hits.
    pub fn tensors_in(&self, chunk: u32) -> Vec<&str> {
        let Some(range) = self.chunking().range(chunk) else {
            return Vec::new();
        };
        let touches = |entry: &&TensorEntry| {
            let end = entry.at.saturating_add(entry.boxed.bytes().unwrap_or(0));
            entry.at < range.end && end > range.start
        };
        let mut found: Vec<&TensorEntry> = self.tensors.iter().filter(touches).collect();
        found.sort_by_key(|entry| entry.at);
        found.into_iter().map(|entry| entry.boxed.name.as_str()).collect()
    }

    /// Refuses an index that contradicts itself. Everything that reads an index may rely on this.
    pub fn check(&self) -> Result<(), ShardLayoutError> {
        Layout {
            job: &self.job,
            rank: self.rank,
            world_size: self.world_size,
            chunk_bytes: self.chunk_bytes,
            image_bytes: self.image_bytes,
            tensors: &self.tensors,
            chunks: self.chunks.len(),
        }
        .check()
    }
}

/// What an index and a draft have in common.
pub(crate) struct Layout<'a> {
    pub(crate) job: &'a JobId,
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
    pub(crate) chunk_bytes: u32,
    pub(crate) image_bytes: u64,
    pub(crate) tensors: &'a [TensorEntry],
    pub(crate) chunks: usize,
}

impl Layout<'_> {
    pub(crate) fn check(&self) -> Result<(), ShardLayoutError> {
        check_job(self.job)?;
        if self.rank.0 >= self.world_size || self.world_size > MAX_WORLD_SIZE {
            return Err(ShardLayoutError::Rank {
                rank: self.rank,
                world_size: self.world_size,
            });
        }
        let chunking = Chunking::new(self.image_bytes, self.chunk_bytes).ok_or(ShardLayoutError::Chunking {
            image_bytes: self.image_bytes,
            chunk_bytes: self.chunk_bytes,
        })?;
        if chunking.count() as usize != self.chunks {
            return Err(ShardLayoutError::ChunkCount {
                expected: chunking.count(),
                found: self.chunks,
            });
        }
        if self.tensors.len() > MAX_TENSORS {
            return Err(ShardLayoutError::TensorCount {
                found: self.tensors.len(),
            });
        }
        self.tensors.iter().try_for_each(|entry| self.check_entry(entry))
    }

    fn check_entry(&self, entry: &TensorEntry) -> Result<(), ShardLayoutError> {
        entry.boxed.check()?;
        let end = entry.boxed.bytes().and_then(|bytes| entry.at.checked_add(bytes));
        if end.is_none_or(|end| end > self.image_bytes) {
            return Err(ShardLayoutError::TensorOutside {
                name: entry.boxed.name.clone(),
                at: entry.at,
                image_bytes: self.image_bytes,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use proptest::prelude::*;

    fn small() -> ShardIndex {
        ShardIndex {
            job: JobId::from("demo"),
            step: Step(7),
            generation: Generation(2),
            rank: Rank(1),
            world_size: 2,
            chunk_bytes: 16,
            image_bytes: 40,
            tensors: vec![
                TensorEntry {
                    boxed: TensorBox::rows("w", Dtype::F32, vec![8, 2], 4..8),
                    at: 0,
                },
                TensorEntry {
                    boxed: TensorBox::whole("b", Dtype::F32, vec![2]),
                    at: 32,
                },
            ],
            chunks: vec![Digest::of(b"a"), Digest::of(b"b"), Digest::of(b"c")],
            state: serde_json::json!({"loss": 0.1 + 0.2, "seed": u64::MAX}),
        }
    }

    #[test]
    fn reads_what_it_wrote_to_the_last_bit_of_a_float() {
        let index = small();
        assert_eq!(ShardIndex::from_bytes(&index.to_bytes()), Ok(index));
    }

    #[test]
    fn rg_2_every_flipped_bit_of_an_index_is_noticed() {
        let whole = small().to_bytes();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(ShardIndex::from_bytes(&damaged).is_err(), "bit {bit} flipped unnoticed");
        }
    }

    #[test]
    fn an_index_that_contradicts_itself_is_refused() {
        let broken = |change: fn(&mut ShardIndex)| {
            let mut index = small();
            change(&mut index);
            ShardIndex::from_bytes(&index.to_bytes()).expect_err("contradicts itself")
        };
        assert!(matches!(broken(|i| i.rank = Rank(2)), ShardLayoutError::Rank { .. }));
        assert!(matches!(
            broken(|i| i.world_size = u32::MAX),
            ShardLayoutError::Rank { .. }
        ));
        assert!(matches!(
            broken(|i| i.chunk_bytes = 0),
            ShardLayoutError::Chunking { .. }
        ));
        assert!(matches!(
            broken(|i| i.image_bytes = u64::MAX),
            ShardLayoutError::Chunking { .. }
        ));
        assert!(matches!(
            broken(|i| i.chunks.truncate(2)),
            ShardLayoutError::ChunkCount { expected: 3, found: 2 }
        ));
        assert!(matches!(
            broken(|i| i.tensors[1].at = 33),
            ShardLayoutError::TensorOutside { .. }
        ));
        assert!(matches!(
            broken(|i| i.tensors[1].at = u64::MAX),
            ShardLayoutError::TensorOutside { .. }
        ));
        assert!(matches!(
            broken(|i| i.job = JobId::from("../etc")),
            ShardLayoutError::Name(_)
        ));
        assert!(matches!(
            broken(|i| i.tensors[0].boxed.offset[0] = 9),
            ShardLayoutError::Box(_)
        ));
    }

    #[test]
    fn damage_to_a_chunk_names_the_tensors_it_hits() {
        let index = small();
        assert_eq!(index.tensors_in(0), ["w"]);
        assert_eq!(index.tensors_in(2), ["b"]);
        assert!(index.tensors_in(3).is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = ShardIndex::from_bytes(&bytes);
        }

        /// Sizes, counts and places that no honest writer makes, behind a digest that is right.
        #[test]
        fn absurd_numbers_never_panic(
            numbers in proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u64>()], 9),
        ) {
            let mut index = small();
            index.image_bytes = numbers[0];
            index.chunk_bytes = numbers[1] as u32;
            index.tensors[0].at = numbers[2];
            index.tensors[0].boxed.offset = numbers[3..5].to_vec();
            index.tensors[0].boxed.shape = numbers[5..7].to_vec();
            index.tensors[0].boxed.global_shape = numbers[7..9].to_vec();
            if let Ok(index) = ShardIndex::from_bytes(&index.to_bytes()) {
                let _ = (index.tensors_in(0), index.chunking().ranges().count());
            }
        }
    }
}
