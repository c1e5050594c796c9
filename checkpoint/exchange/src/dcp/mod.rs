//! Directories that PyTorch's `torch.distributed.checkpoint` (DCP) wrote.
//!
//! ```text
//! .metadata        a pickle: which tensors, their chunks, in which file and where each chunk lies
//! __0_0.distcp     items back to back, each what `torch.save` writes: a zip archive, nothing compressed
//! ```
//!
//! Every pickle is read as plain values and classes by name; nothing is imported or called. Of the archive's records the
//! CRC-32 is compared, which PyTorch itself does not do when it loads. Values that are no tensors are kept where JSON can
//! say them, under the names that DCP gives them (`trainer.schedule.kind`).
//!
//! [`export`] writes such a directory with the table of torch 2.4 and later; its pickles are written byte by byte.
//!
//! Tables of contents differ between versions: where classes live, whether `TensorProperties` has five parts or six, and fields
//! that may be absent (`storage_meta`, `version`, `transform_descriptors`). All of these are read; tests have directories of
//! torch 2.15 and a table with the classes of 2.0. Items that were compressed are named and left out.

mod archive;
mod flatten;
mod item;
mod metadata;
mod read;
mod table;
mod values;
mod walk;
mod write;

pub use metadata::{Chunk, Metadata, MetadataError, Place, Tensor};
pub use read::open;
pub use write::export;

/// The file that makes a directory a DCP checkpoint.
pub const METADATA_FILE: &str = ".metadata";
