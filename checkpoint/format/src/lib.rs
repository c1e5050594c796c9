//! Layout, manifest, digests and reshard planner of a checkpoint.
//!
//! A checkpoint of a job is a folder `<step>-g<generation>` with, for each rank, a `.shard` (the raw image: the rank's
//! tensors one after the other, or only the chunks of it that are new) and an `.index` (what lies where in the image, an
//! XXH3-128 digest a chunk, where each chunk's bytes are kept, the rank's small state), and one `MANIFEST` that names every
//! index by its BLAKE3 digest. So the chain of trust has one end: whoever trusts the manifest can check every byte below it.
//! The folder is a checkpoint if, and only if, it has a manifest (RG-1).
//!
//! Words: a [`TensorBox`] is an N-dimensional part of a global tensor; an *image* is the bytes of one rank; a *chunk*
//! is a piece of one tensor in an image and the unit of digest, transfer, deduplication and repair; the [`Origin`] of a chunk
//! is the shard whose file holds its bytes.
//!
//! # Files through time
//!
//! `.index` and `MANIFEST` start with a magic word and a version, then a digest of everything else (see [`envelope`]).
//! - *Old reader, new data*: a version it does not know is refused with both numbers, never guessed at. Fields may be
//!   added within a version only when a reader that ignores them still loads the right bytes; anything else is a new
//!   version. An old reader must therefore take digests over the bytes it read, not over what it would write itself.
//! - *New reader, old data*: version 1 (chunks that span tensors, BLAKE3 a chunk) was never released, and is refused by its
//!   number. From version 2 on each version keeps its parser; a field added later has a default that means "as before".
//! - *Old writer, new data*: files are never changed after they are written, so no old program rewrites a new file.
//!
//! Invariants: pure (no clock, randomness, files, sockets). Every count and size is bounded and every sum checked
//! before it is used; arbitrary bytes give an error, never a panic.
//!
//! Absent on purpose: element types narrower than a byte, compression, and non-tensor state that is not JSON (JSON has
//! no NaN and no infinity: a float that is one becomes `null` before it ever reaches this crate).

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

pub use chunk::{Chunking, DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MAX_CHUNKS, TENSOR_ALIGN, chunk_bytes_for};
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
pub use origin::{Borrowed, ChunkPlace, Known, MAX_ORIGINS, Origin};
pub use plan::{OwnTensors, PlanError, RangeCopy, plan, plan_own};
pub use rankguard_model::Ledger;
pub use run_record::{
    AttemptRecord, AttemptSet, MAX_RECORD_BYTES, RUN_FILE, RecordError, RunRecord, attempt_file, attempt_of,
};
pub use tensor_box::{BoxError, MAX_DIMS, MAX_NAME_BYTES, TensorBox};
