//! Checkpoint tiers beyond one disk: object stores, parity, placement over failure domains, and bulk sockets
//! between agents.
//!
//! - [`object`]: mirrors committed checkpoints to any object store (file, S3, GCS, Azure) and restores them;
//! - [`parity`]: XOR and Reed-Solomon over groups of shards of any number and length;
//! - [`placement`]: assigns replicas and parity to nodes, pure;
//! - [`bulk`]: sends images and parity between agents on separate sockets;
//! - [`cap`]: limits the bandwidth that all of them take from training.
//!
//! Every tier provides chunks as a [`rankguard_checkpoint::source::ChunkSource`], and the reader compares every
//! chunk with the digest in the committed index (RG-2), so a tier need not be trusted. Completion is returned as a
//! value. No `unsafe`.

#![deny(unsafe_code)]

pub mod bulk;
pub mod cap;
pub mod object;
pub mod parity;
pub mod placement;
mod shard;
