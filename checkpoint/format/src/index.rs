//! Shard index: tensor table of the image of one rank, chunk digests, and the location of the bytes of each chunk.

use std::io;

use rankguard_model::{Generation, JobId, Rank, SampleRange, Step};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chunk::TENSOR_ALIGN;
use crate::chunk_digest::{ChunkDigest, table};
use crate::envelope::{self, EnvelopeError};
use crate::origin::{self, BorrowedRun, ChunkOrigin, MAX_ORIGINS};
use crate::{
    BoxError, CheckpointId, ChunkLayout, DEFAULT_CHUNK_BYTES, Digest, MAX_WORLD_SIZE, NameError, TensorBox, check_job,
};

const MAGIC: &str = "rankguard-shard-index";

/// Maximum size of an index file, bytes; a million chunks and a hundred thousand tensors fit.
pub const MAX_INDEX_BYTES: usize = 128 << 20;

/// Maximum state of one rank, bytes of JSON text. State is for counters, seeds and ledgers; large data belongs in
/// tensors.
pub const MAX_STATE_BYTES: usize = 16 << 20;

/// Maximum number of tensors in one image.
pub const MAX_TENSORS: usize = 1 << 20;

/// Part of a tensor and its position in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorEntry {
    /// Tensor name, element type, offset and shape of the part.
    pub boxed: TensorBox,
    /// First byte in the image: the end of the previous tensor, rounded up to a multiple of
    /// [`TENSOR_ALIGN`](crate::TENSOR_ALIGN).
    pub at: u64,
    /// Copy number of this part. 0 is the primary; all other copies must equal it.
    #[serde(default, skip_serializing_if = "is_primary")]
    pub replica: u32,
}

fn is_primary(replica: &u32) -> bool {
    *replica == 0
}

/// Maximum length of a schema name, bytes.
pub const MAX_SCHEMA_BYTES: usize = 128;

/// Index of the shard of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardIndex {
    /// Job of the checkpoint.
    pub job: JobId,
    /// Step of the image.
    pub step: Step,
    /// Generation that wrote the shard.
    pub generation: Generation,
    /// Rank that wrote the shard.
    pub rank: Rank,
    /// Number of ranks in that generation.
    pub world_size: u32,
    /// Chunk size, bytes.
    pub chunk_bytes: u32,
    /// Image size, bytes.
    pub image_bytes: u64,
    /// Tensor table, in image order.
    pub tensors: Vec<TensorEntry>,
    /// Digest of each chunk, in the order of [`ChunkLayout`].
    #[serde(with = "table")]
    pub chunks: Vec<ChunkDigest>,
    /// [`ChunkDigest::root`] over `chunks`; images with equal roots are equal.
    pub root: ChunkDigest,
    /// Shards that store chunks of this image in their files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<ChunkOrigin>,
    /// Chunk runs stored by `origins`, sorted and without overlap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub borrowed: Vec<BorrowedRun>,
    /// Interval of the sample stream of the job that this state covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<SampleRange>,
    /// Name of the format of `state`, with a version; empty if the rank gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schema: String,
    /// State of the rank besides its tensors, as JSON.
    pub state: Value,
}

/// Reason why a shard layout is inconsistent.
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
    #[error(
        "cannot cut {image_bytes} bytes into chunks of {chunk_bytes}: chunks are multiples of {TENSOR_ALIGN}, and neither too large nor too many"
    )]
    Chunking { image_bytes: u64, chunk_bytes: u32 },
    #[error("names {found} chunks where the image has {expected}")]
    ChunkCount { expected: u32, found: usize },
    #[error("names {found} tensors, more than {MAX_TENSORS}")]
    TensorCount { found: usize },
    #[error("tensor {name} lies at byte {at} where the tensors before it and its size want {expected}")]
    TensorPlace { name: String, at: u64, expected: u64 },
    #[error("states an image of {stated} bytes where its tensors have {found}")]
    ImageLength { stated: u64, found: u64 },
    #[error("has a table of chunks with root {found} where it states {stated}")]
    Root { stated: ChunkDigest, found: ChunkDigest },
    #[error("borrows from {found} shards, more than {MAX_ORIGINS}")]
    OriginCount { found: usize },
    #[error("borrows from rank {rank} of checkpoint {checkpoint}, which is itself or not older")]
    Origin { checkpoint: CheckpointId, rank: Rank },
    #[error("borrows chunks from {first} on that are out of order, out of bounds or from nowhere")]
    Borrowed { first: u32 },
    #[error("ledger ends at sample {end}, before its first {first}")]
    Ledger { first: u64, end: u64 },
    #[error("name of the state's schema is longer than {MAX_SCHEMA_BYTES} bytes or has control characters")]
    Schema,
    #[error("has {bytes} bytes of state, more than {MAX_STATE_BYTES}; keep large data in tensors")]
    State { bytes: usize },
}

impl ShardLayoutError {
    /// True if the file has another format version, which is not damage.
    pub fn is_of_other_version(&self) -> bool {
        matches!(self, Self::Envelope(EnvelopeError::Version { .. }))
    }
}

impl ShardIndex {
    /// Creates an index without tensors for rank 0 of 1; writers fill it.
    pub fn new(job: &JobId, id: CheckpointId) -> Self {
        Self {
            job: job.clone(),
            step: id.step,
            generation: id.generation,
            rank: Rank(0),
            world_size: 1,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            image_bytes: 0,
            tensors: Vec::new(),
            chunks: Vec::new(),
            root: ChunkDigest::root(&[]),
            origins: Vec::new(),
            borrowed: Vec::new(),
            ledger: None,
            schema: String::new(),
            state: Value::Null,
        }
    }

    /// Places `boxes` in sequence, each at a multiple of [`TENSOR_ALIGN`](crate::TENSOR_ALIGN), as primary copies.
    /// Returns the entries and the image length, which is `None` if it exceeds 64 bits. Does not validate the boxes.
    pub fn lay_out(boxes: impl IntoIterator<Item = TensorBox>) -> (Vec<TensorEntry>, Option<u64>) {
        let mut end = Some(0u64);
        let place = |boxed: TensorBox| {
            let at = end.and_then(|end| end.checked_next_multiple_of(TENSOR_ALIGN));
            end = at.and_then(|at| at.checked_add(boxed.bytes()?));
            TensorEntry {
                boxed,
                at: at.unwrap_or(u64::MAX),
                replica: 0,
            }
        };
        let entries = boxes.into_iter().map(place).collect();
        (entries, end)
    }

    /// Sets the chunk digests and their root.
    pub fn set_chunks(&mut self, chunks: Vec<ChunkDigest>) {
        self.root = ChunkDigest::root(&chunks);
        self.chunks = chunks;
    }

    /// Digests every chunk of `image`, which must have the layout of `tensors`.
    pub fn digest_image(&mut self, image: &[u8]) {
        let cut = |range: std::ops::Range<u64>| ChunkDigest::of(&image[range.start as usize..range.end as usize]);
        let chunks = self.chunking().ranges().map(cut).collect();
        self.set_chunks(chunks);
    }

    /// Returns the id of the checkpoint.
    pub fn id(&self) -> CheckpointId {
        CheckpointId {
            step: self.step,
            generation: self.generation,
        }
    }

    /// Returns the content of an `.index` file.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(MAGIC, self)
    }

    /// Passes the content of an `.index` file to `put` in parts of a few KiB, each with its file offset; the first part
    /// comes last. Returns the length in bytes.
    pub fn write_with(&self, put: impl FnMut(usize, &[u8]) -> io::Result<()>) -> io::Result<usize> {
        envelope::seal_into(MAGIC, self, put)
    }

    /// Parses and validates an `.index` file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ShardLayoutError> {
        let index: Self = envelope::open(MAGIC, MAX_INDEX_BYTES, bytes)?;
        index.check()?;
        Ok(index)
    }

    /// Returns the digest by which a manifest identifies this index. For an index that was read from a file, use
    /// [`Digest::of`] on the bytes read: they may hold fields that this program does not know.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }

    /// Computes the chunk boundaries. Costs a pass over the tensors, so callers should retain the result.
    pub fn chunking(&self) -> ChunkLayout {
        ChunkLayout::new(&self.tensors, self.chunk_bytes).expect("an index is checked when read or built")
    }

    /// Returns the name of the tensor that contains `chunk`, for damage reports; empty past the end.
    pub fn tensor_in(&self, chunk: u32) -> &str {
        let place = self.chunking().tensor_of(chunk);
        place.map_or("", |place| self.tensors[place].boxed.name.as_str())
    }

    /// Validates the index. Every reader of an index may rely on these checks.
    pub fn check(&self) -> Result<(), ShardLayoutError> {
        check_job(&self.job)?;
        if self.rank.0 >= self.world_size || self.world_size > MAX_WORLD_SIZE {
            return Err(ShardLayoutError::Rank {
                rank: self.rank,
                world_size: self.world_size,
            });
        }
        if self.tensors.len() > MAX_TENSORS {
            return Err(ShardLayoutError::TensorCount {
                found: self.tensors.len(),
            });
        }
        self.check_tensors()?;
        let chunking = ChunkLayout::new(&self.tensors, self.chunk_bytes).ok_or(ShardLayoutError::Chunking {
            image_bytes: self.image_bytes,
            chunk_bytes: self.chunk_bytes,
        })?;
        if chunking.count() as usize != self.chunks.len() {
            return Err(ShardLayoutError::ChunkCount {
                expected: chunking.count(),
                found: self.chunks.len(),
            });
        }
        let stated = self.root;
        let found = ChunkDigest::root(&self.chunks);
        if stated != found {
            return Err(ShardLayoutError::Root { stated, found });
        }
        if let Some(SampleRange { first, end }) = self.ledger
            && end < first
        {
            return Err(ShardLayoutError::Ledger { first, end });
        }
        if self.schema.len() > MAX_SCHEMA_BYTES || self.schema.chars().any(char::is_control) {
            return Err(ShardLayoutError::Schema);
        }
        origin::check(self, &chunking)
    }

    fn check_tensors(&self) -> Result<(), ShardLayoutError> {
        let mut end = 0u64;
        for entry in &self.tensors {
            entry.boxed.check()?;
            let expected = end.checked_next_multiple_of(TENSOR_ALIGN).unwrap_or(u64::MAX);
            let ends = entry.boxed.bytes().and_then(|bytes| expected.checked_add(bytes));
            if entry.at != expected || ends.is_none() {
                return Err(ShardLayoutError::TensorPlace {
                    name: entry.boxed.name.clone(),
                    at: entry.at,
                    expected,
                });
            }
            end = ends.unwrap_or(u64::MAX);
        }
        if self.image_bytes != end {
            let stated = self.image_bytes;
            let found = end;
            return Err(ShardLayoutError::ImageLength { stated, found });
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
        let id = CheckpointId {
            step: Step(7),
            generation: Generation(2),
        };
        let boxes = [
            TensorBox::rows("w", Dtype::F32, vec![80, 2], 40..60),
            TensorBox::whole("b", Dtype::F32, vec![2]),
        ];
        let (tensors, end) = ShardIndex::lay_out(boxes);
        let mut index = ShardIndex {
            rank: Rank(1),
            world_size: 2,
            chunk_bytes: 64,
            image_bytes: end.expect("small"),
            tensors,
            ledger: Some(SampleRange { first: 0, end: 640 }),
            schema: "counters/1".to_owned(),
            state: serde_json::json!({"loss": 0.1 + 0.2, "seed": u64::MAX}),
            ..ShardIndex::new(&JobId::from("demo"), id)
        };
        index.tensors[1].replica = 1;
        index.digest_image(&[7; 200]);
        index
    }

    #[test]
    fn tensors_begin_at_whole_cache_lines() {
        let index = small();
        assert_eq!(
            (index.tensors[0].at, index.tensors[1].at, index.image_bytes),
            (0, 192, 200)
        );
        assert_eq!(index.chunks.len(), 4);
    }

    #[test]
    fn an_image_beyond_64_bits_has_no_length() {
        let huge = || TensorBox::whole("x", Dtype::U8, vec![u64::MAX]);
        assert_eq!(ShardIndex::lay_out([huge(), huge(), huge()]).1, None);
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
            ShardLayoutError::ImageLength { .. }
        ));
        assert!(matches!(
            broken(|i| i.chunks.truncate(2)),
            ShardLayoutError::ChunkCount { expected: 4, found: 2 }
        ));
        assert!(matches!(broken(|i| i.chunks.swap(0, 3)), ShardLayoutError::Root { .. }));
        for at in [0, 191, 193, 256, u64::MAX] {
            let mut index = small();
            index.tensors[1].at = at;
            let error = ShardIndex::from_bytes(&index.to_bytes()).expect_err("not where it belongs");
            assert!(matches!(error, ShardLayoutError::TensorPlace { .. }), "{at}");
        }
        assert!(matches!(
            broken(|i| i.ledger = Some(SampleRange { first: 2, end: 1 })),
            ShardLayoutError::Ledger { .. }
        ));
        assert!(matches!(
            broken(|i| i.schema = "a\nb".to_owned()),
            ShardLayoutError::Schema
        ));
        assert!(matches!(
            broken(|i| i.job = JobId::from("../etc")),
            ShardLayoutError::Name(_)
        ));
        assert!(matches!(
            broken(|i| i.tensors[0].boxed.offset[0] = 61),
            ShardLayoutError::Box(_)
        ));
    }

    #[test]
    fn damage_to_a_chunk_names_the_tensors_it_hits() {
        let index = small();
        assert_eq!([0, 2, 3, 4].map(|chunk| index.tensor_in(chunk)), ["w", "w", "b", ""]);
    }

    #[test]
    fn version_1_is_refused_by_its_number() {
        let old = String::from_utf8(small().to_bytes())
            .expect("text")
            .replacen(" 2\n", " 1\n", 1);
        let error = ShardIndex::from_bytes(old.as_bytes())
            .expect_err("an older version")
            .to_string();
        assert!(
            error.contains("of version 1") && error.contains("reads version 2"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = ShardIndex::from_bytes(&bytes);
        }

        /// Sizes, counts and positions that no writer produces, with a correct digest.
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
                let _ = (index.tensor_in(0), index.places(), index.chunking().ranges().count());
            }
        }
    }
}
