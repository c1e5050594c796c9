//! Import and export of the safetensors format.
//!
//! ```text
//! u64 little-endian: length of the header | header, JSON, padded with spaces | the tensors, row-major, little-endian
//! ```
//!
//! The format has no digests. Files written here carry the BLAKE3 digest of every tensor in their `__metadata__`; other
//! readers ignore it, and [`read`] compares it.

mod header;
mod read;
mod write;

pub use header::{HeaderError, HeaderTensor, MAX_HEADER_BYTES, SafetensorsHeader};
pub use read::open;
pub use write::export;

/// Name of the index over several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// Keys of `__metadata__` in files written here.
pub(crate) mod keys {
    pub(crate) const DIGESTS: &str = "rankguard.blake3";
    pub(crate) const STATES: &str = "rankguard.states";
}
