//! Tiers beyond one disk: object stores, parity, placement over failure domains, and bulk sockets between agents.
//!
//! - [`object`]: mirrors committed checkpoints into any object store (file, S3, GCS, Azure) and brings them back;
//! - [`parity`]: XOR and Reed-Solomon over groups of shards of any number and length;
//! - [`placement`]: who keeps whose replica or parity, pure;
//! - [`bulk`]: images and parity from agent to agent, on sockets of their own;
//! - [`cap`]: the bandwidth that all of them may take from training.
//!
//! Every tier gives chunks as a [`rankguard_checkpoint::source::ChunkSource`], and every chunk is compared with the
//! digest that the committed index states by whoever takes it (RG-2); a tier need not be trusted. Completion is a
//! value that the caller gets. No `unsafe`.

#![deny(unsafe_code)]

pub mod bulk;
pub mod cap;
pub mod object;
pub mod parity;
pub mod placement;
mod shard;
