//! Checkpoints in the formats of others, and two checkpoints beside each other.
//!
//! - [`safetensors`]: a committed checkpoint as one file or several with an index, and such files as a checkpoint;
//! - [`torch_file`]: a committed checkpoint as one file for `torch.load`;
//! - [`dcp`]: a committed checkpoint as a directory for PyTorch's `torch.distributed.checkpoint`, and such directories as a
//!   checkpoint;
//! - [`show`] and [`diff`]: what a checkpoint holds, and what is different in another.
//!
//! The way in is one: a reader describes what it found as a [`Foreign`], the parts of tensors over one *volume*, the bytes of
//! all its files one behind the other; [`import()`] cuts every tensor for the wanted number of ranks, reads what each rank
//! holds through the reshard planner, writes shards and commits.
//!
//! Invariants:
//! - foreign files are never believed and nothing in them is executed (RG-11): sizes are checked before they are used, a
//!   pickle is read as plain values, what cannot be kept is named in a list of problems;
//! - memory has a bound that does not grow with the size of the state: a block, the table of contents, one tensor's plan;
//! - what was damaged is never imported: wherever the other format has a checksum it is compared, and a checkpoint is
//!   exported only through digests that its manifest vouches for (RG-2);
//! - files and folders appear whole under their names or not at all; only a request replaces what an export may have
//!   written (RG-1).
//!
//! Absent: import of `torch.save` files; element types that are not whole bytes or that [`rankguard_checkpoint::format::Dtype`]
//! does not name; DCP items that were compressed or transformed, sparse and quantised tensors, tensor subclasses.

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
pub use foreign::{Foreign, Part};
pub use import::{ImportOf, Imported, import, open};
pub use problem::Problem;

/// Told of work done: bytes so far, bytes in all.
pub type Progress<'a> = &'a mut (dyn FnMut(u64, u64) + Send);
