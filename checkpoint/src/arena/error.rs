//! Errors of arena operations.

use std::io;
use std::time::Duration;

use rankguard_model::Generation;
use rustix::io::Errno;

use crate::arena::SlotState;
use crate::format::{BoxError, ChunkDigest, ShardLayoutError};

/// Error of an operation on an arena: invalid dimensions, a failed system call, or a slot in another state than needed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ArenaError {
    #[error("no image is restored for generation {generation}: it is fenced off by generation {fence}")]
    Fenced { generation: Generation, fence: Generation },
    #[error("an arena of {slots} slots with {image_bytes} bytes each is out of bounds")]
    Size { slots: u32, image_bytes: u64 },
    #[error("images of {image_bytes} bytes cannot pass through a window of {window}: give it {least} bytes or more")]
    Window { image_bytes: u64, window: u64, least: u64 },
    #[error("images only pass through slot {slot}: it never holds one")]
    NotHeld { slot: u32 },
    #[error("no {bytes} bytes of memory for an arena; lower the image size or the ranks on this node")]
    Memory { bytes: u64, source: io::Error },
    #[error("cannot {what}")]
    System { what: &'static str, source: io::Error },
    #[error("the file descriptor {problem}, so it is no arena of this program")]
    NotOne { problem: &'static str },
    #[error("no slot {slot} in an arena of {slots}")]
    NoSlot { slot: u32, slots: u32 },
    #[error("{bytes} bytes at {at} do not lie in a slot of {capacity}")]
    Outside { at: u64, bytes: u64, capacity: u64 },
    #[error("slot {slot} is {is} where {wanted} is needed")]
    State {
        slot: u32,
        is: SlotState,
        wanted: SlotState,
    },
    #[error("slot {slot} is sealed by generation {sealed}, but describes an image of generation {described}")]
    Generation {
        slot: u32,
        sealed: Generation,
        described: Generation,
    },
    #[error("slot {slot} has {bytes} bytes of description where {capacity} fit")]
    MetaLength { slot: u32, bytes: u64, capacity: u64 },
    #[error("slot {slot} describes an image of {bytes} bytes where {capacity} fit")]
    ImageLength { slot: u32, bytes: u64, capacity: u64 },
    #[error("description of slot {slot}: {problem}")]
    Index { slot: u32, problem: ShardLayoutError },
    #[error("chunk {chunk} of slot {slot} has digest {found}, the rank said {stated}: changed after it was sealed")]
    Damaged {
        slot: u32,
        chunk: u32,
        stated: ChunkDigest,
        found: ChunkDigest,
    },
}

impl ArenaError {
    /// Returns the error of a failed system call; `what` completes "cannot ...".
    pub(super) fn system(what: &'static str, errno: Errno) -> Self {
        Self::System {
            what,
            source: errno.into(),
        }
    }
}

/// Error of a save by a rank ([`Arena::fill`](crate::arena::Arena::fill),
/// [`Arena::stream`](crate::arena::Arena::stream)). The slot holds no image of this save.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum FillError {
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error(transparent)]
    Box(#[from] BoxError),
    #[error(transparent)]
    Layout(#[from] ShardLayoutError),
    #[error("tensor {tensor}: {has} bytes given where its shape needs {needs}")]
    Data { tensor: String, has: u64, needs: u64 },
    #[error("image of {bytes} bytes does not fit into a slot of {capacity}")]
    Image { bytes: u64, capacity: u64 },
    #[error("description of {bytes} bytes does not fit into {capacity}; keep large state in tensors")]
    Meta { bytes: u64, capacity: u64 },
    #[error("generation {generation} is fenced off by generation {fence}")]
    Fenced { generation: Generation, fence: Generation },
    #[error("slot {slot} was taken back while it was being filled")]
    TakenBack { slot: u32 },
    #[error("nothing was taken out of the window of slot {slot} for {patience:?}, and the image does not fit into it")]
    Stuck { slot: u32, patience: Duration },
}

/// Error of the reader of an image that passes through a window: the image is incomplete, and the bytes that were read
/// must be discarded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum StreamError {
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error("the rank has gone after {filled} of {total} bytes")]
    Gone { filled: u64, total: u64 },
    #[error("the rank gave it up after {filled} of {total} bytes")]
    GivenUp { filled: u64, total: u64 },
    #[error("generation {generation} was fenced off by generation {fence} after {filled} of {total} bytes")]
    Fenced {
        generation: Generation,
        fence: Generation,
        filled: u64,
        total: u64,
    },
    #[error("the rank filled nothing for {patience:?} after {filled} of {total} bytes")]
    Stuck {
        patience: Duration,
        filled: u64,
        total: u64,
    },
    #[error("the rank describes another image at the end than at the beginning")]
    Redescribed,
}
