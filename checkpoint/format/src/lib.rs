//! Layout, manifest, digests and reshard planner of a checkpoint.
//!
//! A checkpoint of a job is a folder `<step>-g<generation>`. For each rank it holds a `.shard` file (the raw image: the
//! tensors of the rank in sequence, or only its new chunks) and an `.index` file (tensor table, one XXH3-128 digest per
//! chunk, location of the bytes of each chunk, state of the rank). One `MANIFEST` lists the BLAKE3 digest of every
//! index, so a reader that trusts the manifest can verify every byte below it. The folder is a checkpoint if, and only
//! if, it has a manifest (RG-1).
//!
//! Terms: a [`TensorBox`] is an N-dimensional part of a global tensor; an *image* is the bytes of one rank; a *chunk*
//! is a contiguous part of one tensor in an image and the unit of digest, transfer, deduplication and repair; the
//! [`ChunkOrigin`] of a chunk is the shard that stores its bytes.
//!
//! # Format compatibility
//!
//! `.index` and `MANIFEST` start with a magic word and a version, followed by a digest of everything else (see
//! [`envelope`]).
//! - *Old reader, new data*: an unknown version is refused with an error that gives both versions. A field may be added
//!   within a version only if a reader that ignores it still loads the right bytes; any other change is a new version.
//!   A reader must therefore take digests over the bytes it read, not over its own serialization of them.
//! - *New reader, old data*: version 1 (chunks that span tensors, one BLAKE3 per chunk) was never released and is
//!   refused by its number. From version 2 on each version keeps its parser; a field added later has a default that
//!   means "as before".
//! - *Old writer, new data*: files are immutable, so an old program never rewrites a new file.
//!
//! Invariants: pure (no clock, randomness, files, sockets). Every count and size is bounded and every sum is checked
//! before use; arbitrary bytes give an error, never a panic.
//!
//! Not supported: element types narrower than a byte, compression, and non-tensor state that is not JSON (JSON has no
//! NaN and no infinity: such a float becomes `null` before it reaches this crate).

#![warn(missing_docs)]

mod chunk;
mod chunk_digest;
mod difference;
mod digest;
mod dtype;
pub mod envelope;
mod index;
mod manifest;
mod name;
mod origin;
mod plan;
mod run_record;
mod tensor_box;

pub use chunk::{ChunkLayout, DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MAX_CHUNKS, TENSOR_ALIGN, chunk_bytes_for};
pub use chunk_digest::{ChunkDigest, ChunkDigestError, ChunkHasher};
pub use difference::{DifferenceCause, TensorDifference, tensor_differences};
pub use digest::{Digest, DigestError};
pub use dtype::{Dtype, UnknownDtype};
pub use envelope::EnvelopeError;
pub use index::{
    MAX_INDEX_BYTES, MAX_SCHEMA_BYTES, MAX_STATE_BYTES, MAX_TENSORS, ShardIndex, ShardLayoutError, TensorEntry,
};
pub use manifest::{MAX_MANIFEST_BYTES, MAX_WORLD_SIZE, Manifest, ManifestError, ManifestShard};
pub use name::{CheckpointId, LENT_FILE, MANIFEST_FILE, NameError, check_job, index_file, shard_file};
pub use origin::{BorrowedRun, ChunkOrigin, ChunkPlace, KnownChunks, MAX_ORIGINS};
pub use plan::{OwnTensors, PlanError, RangeCopy, plan, plan_own};
pub use rankguard_model::SampleRange;
pub use run_record::{
    AttemptRecord, AttemptSet, MAX_RECORD_BYTES, RUN_FILE, RecordError, RunRecord, attempt_file, attempt_of,
};
pub use tensor_box::{BoxError, MAX_DIMS, MAX_NAME_BYTES, TensorBox};
