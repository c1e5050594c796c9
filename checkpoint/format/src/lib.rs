//! Layout, manifest, digests and reshard planner of a checkpoint.
//!
//! A checkpoint of a job is a folder `<step>-g<generation>` with, for each rank, a `.shard` (the raw image: the rank's
//! tensors back to back) and an `.index` (what lies where in the image, a BLAKE3 digest a chunk, the rank's small
//! state), and one `MANIFEST` that names every index by its digest. So the chain of trust has one end: whoever trusts
//! the manifest can check every byte below it. The folder is a checkpoint if, and only if, it has a manifest (RG-1).
//!
//! Words: a [`TensorBox`] is an N-dimensional part of a global tensor; an *image* is the bytes of one rank; a *chunk*
//! is a fixed-size piece of an image and the unit of digest, transfer and repair; a [`ShardDraft`] is what a rank says
//! of its image before anyone has checked it.
//!
//! # Files through time
//!
//! `.index` and `MANIFEST` start with a magic word and a version, then a digest of everything else (see [`envelope`]).
//! - *Old reader, new data*: a version it does not know is refused with both numbers, never guessed at. Fields may be
//!   added within a version only when a reader that ignores them still loads the right bytes; anything else is a new
//!   version. An old reader must therefore take digests over the bytes it read, not over what it would write itself.
//! - *New reader, old data*: each version keeps its parser; a field added later has a default that means "as before".
//! - *Old writer, new data*: files are never changed after they are written, so no old program rewrites a new file.
//!
//! Invariants: pure (no clock, randomness, files, sockets). Every count and size is bounded and every sum checked
//! before it is used; arbitrary bytes give an error, never a panic.
//!
//! Absent on purpose: element types narrower than a byte, compression, and non-tensor state that is not JSON (JSON has
//! no NaN and no infinity: a float that is one becomes `null` before it ever reaches this crate).

mod checksum;
mod chunk;
mod digest;
mod draft;
mod dtype;
pub mod envelope;
mod index;
mod manifest;
mod name;
mod plan;
mod tensor_box;

pub use checksum::{Crc32c, crc32c};
pub use chunk::{Chunking, DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MAX_CHUNKS};
pub use digest::{Digest, DigestError};
pub use draft::ShardDraft;
pub use dtype::{Dtype, UnknownDtype};
pub use envelope::EnvelopeError;
pub use index::{MAX_INDEX_BYTES, MAX_STATE_BYTES, MAX_TENSORS, ShardIndex, ShardLayoutError, TensorEntry};
pub use manifest::{MAX_MANIFEST_BYTES, MAX_WORLD_SIZE, Manifest, ManifestError, ManifestShard};
pub use name::{CheckpointId, MANIFEST_FILE, NameError, check_job, index_file, shard_file};
pub use plan::{PlanError, RangeCopy, plan};
pub use tensor_box::{BoxError, MAX_DIMS, MAX_NAME_BYTES, TensorBox};
