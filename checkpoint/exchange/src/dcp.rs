//! Import and export of directories of PyTorch's `torch.distributed.checkpoint` (DCP).
//!
//! ```text
//! .metadata        a pickle: which tensors, their chunks, in which file and where each chunk lies
//! __0_0.distcp     items back to back, each what `torch.save` writes: a zip archive, nothing compressed
//! ```
//!
//! Every pickle is read as plain values and classes by name; nothing is imported or called. The CRC-32 of every archive
//! record is compared, which PyTorch itself does not do when it loads. Values that are not tensors are imported if JSON
//! can represent them, under their DCP names (`trainer.schedule.kind`).
//!
//! [`export`] writes such a directory with the table of torch 2.4 and later; its pickles are written byte by byte.
//!
//! Tables of contents differ between versions: modules of the classes, five or six parts of `TensorProperties`, and
//! optional fields (`storage_meta`, `version`, `transform_descriptors`). All of these are read; tests have directories
//! of torch 2.15 and a table with the classes of 2.0. Compressed items are reported as problems and left out.

mod archive;
mod flatten;
mod item;
mod metadata;
mod read;
mod table;
mod values;
mod walk;
mod write;

pub use metadata::{DcpChunk, DcpMetadata, DcpTensor, ItemLocation, MetadataError};
pub use read::open;
pub use write::export;

/// Name of the file that marks a directory as a DCP checkpoint.
pub const METADATA_FILE: &str = ".metadata";
