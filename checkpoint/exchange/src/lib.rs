//! Exchange of checkpoints with other formats, and inspection and comparison of checkpoints.
//!
//! - [`safetensors`]: exports a committed checkpoint as one file or several with an index, and imports such files;
//! - [`torch_file`]: exports a committed checkpoint as one file for `torch.load`;
//! - [`dcp`]: exports a committed checkpoint as a directory for PyTorch's `torch.distributed.checkpoint`, and imports
//!   such directories;
//! - [`show`] and [`diff`]: describe the content of a checkpoint, and the differences between two.
//!
//! All imports share one path: a reader describes its findings as a [`ForeignCheckpoint`], the parts of tensors over one
//! *volume*, the concatenated bytes of all its files. [`import()`] shards every tensor for the requested number of
//! ranks, reads the part of each rank through the reshard planner, writes shards and commits.
//!
//! Invariants:
//! - foreign files are not trusted and nothing in them is executed (RG-11): sizes are checked before use, a pickle is
//!   read as plain values, entries that cannot be imported are listed as problems;
//! - memory is bounded independently of the size of the state: a block, the table of contents, the plan of one tensor;
//! - damaged data is never imported: checksums of the other format are compared wherever it has them, and a checkpoint
//!   is exported only through digests that its manifest covers (RG-2);
//! - files and directories appear complete under their names or not at all; an earlier export is replaced only on
//!   request (RG-1).
//!
//! Absent: import of `torch.save` files; element types that are not whole bytes or that
//! [`rankguard_checkpoint::format::Dtype`] does not name; DCP items that were compressed or transformed, sparse and
//! quantised tensors, tensor subclasses.

#![deny(unsafe_code)]

mod archive_plan;
mod archive_writer;
pub mod dcp;
pub mod diff;
mod error;
mod export;
mod files;
mod foreign;
mod import;
mod numbers;
mod pickle_writer;
mod pieces;
mod problem;
mod python_value;
pub mod safetensors;
mod shard;
pub mod show;
mod state_tree;
pub mod torch_file;
mod volume;

pub use error::ExchangeError;
pub use export::{DEFAULT_FILE_BYTES, ExportReport, ExportRequest, NameSelection};
pub use foreign::{ForeignCheckpoint, TensorPart};
pub use import::{ImportReport, ImportTarget, import, open};
pub use problem::ImportProblem;

/// Callback for progress reports: bytes done, bytes in total.
pub type ProgressCallback<'a> = &'a mut (dyn FnMut(u64, u64) + Send);
