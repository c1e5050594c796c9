//! Arena, tiers, commit, restore and verification of sharded checkpoints.
//!
//! Save path: the rank copies its tensors into a slot of the [`arena`] and seals it, then training continues; the agent
//! verifies the slot and writes it to the [`store`]; when every shard is stored, the controller commits the manifest,
//! and only then the checkpoint exists (RG-1). Restore path: [`restore::assemble`] plans the byte ranges to read from
//! each shard and takes each chunk from the nearest [`source`] with a copy of the right digest.
//!
//! Invariants:
//! - nothing is overwritten: a file appears complete under its final name, or not at all, and only if the name was
//!   free;
//! - no byte is passed to a trainer before it was verified against a digest that the manifest covers (RG-2);
//! - shared memory is written by another process and is not trusted: every number read from it is bounded first, and
//!   bytes are copied out before they are verified.
//!
//! `unsafe` is confined to three files, `arena/mapping.rs`, `arena/kernel.rs` and `pages.rs`.
//!
//! Related: [`repair`] overwrites damaged data with verified copies, the only exception to the first rule. Object
//! stores, parity and sockets between agents are in `checkpoint/tiers`, intervals and agreement in
//! `checkpoint/schedule`, foreign formats in `checkpoint/exchange`.
//!
//! Not supported: io_uring; leases on filesystems without `flock` ([`store`], [`CheckpointLease`]).

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
pub use image::{ImageSink, ImageSource, MappedImage, ScatteredBuffers, SinkRegion};
pub use priority::{in_background, lower_priority};
pub use rankguard_checkpoint_format as format;
pub use store::{
    Checkpoint, CheckpointLease, FillLease, IncomingFile, PublishResult, Store, StoreError, StoreProblem, WorkRecord,
    set_store_umask,
};
