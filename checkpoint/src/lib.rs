//! Arena, tiers, commit, restore and verification of sharded checkpoints.
//!
//! The way of a checkpoint: the rank copies its tensors into a slot of the [`arena`] and seals it (training goes on);
//! the agent checks the slot and writes it to the [`store`]; when every shard is there, the controller
//! commits the manifest, and only then the checkpoint exists (RG-1). The way back: [`restore::assemble`] plans which
//! bytes of which shards are wanted and takes each chunk from the nearest [`source`] whose copy has the right digest.
//!
//! Invariants:
//! - nothing is overwritten: files appear whole under their final name, or not at all, and only if nothing stood there;
//! - no byte leaves this crate for a trainer that has not been checked against a digest the manifest vouches for (RG-2);
//! - what lies in shared memory is written by another process and is not believed: every number read from it is
//!   bounded first, and bytes are copied out before they are checked.
//!
//! `unsafe` stands in three files, `arena/mapping.rs`, `arena/kernel.rs` and `pages.rs`.
//!
//! Beside it: [`repair`] writes checked copies over what is damaged; object stores, parity and sockets between agents are a
//! crate of their own (`checkpoint/tiers`), and so are intervals and agreement (`checkpoint/schedule`) and foreign formats
//! (`checkpoint/exchange`).
//!
//! Absent: io_uring; leases on filesystems without `flock` ([`store`], [`Lease`]).

#![deny(unsafe_code)]

pub mod arena;
pub mod claim;
pub mod failure;
mod image;
#[allow(unsafe_code)]
mod pages;
mod priority;
pub mod repair;
pub mod restore;
pub mod retention;
pub mod source;
pub mod store;
pub mod verify;

pub use arena::Arena;
pub use failure::ReadFailure;
pub use image::{ImageSink, ImageSource, MappedImage, Piece, Scattered};
pub use priority::{give_way, in_background};
pub use rankguard_checkpoint_format as format;
pub use store::{
    Checkpoint, FillLease, IncomingFile, Lease, Problem, Published, Store, StoreError, WorkRecord, set_store_umask,
};
