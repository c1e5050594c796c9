//! Messages between the bench and its ranks: one JSON line each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Request of the bench to a rank process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RankRequest {
    /// Copies all tensors into touched memory: the lower bound of a stall.
    Memcpy,
    /// Copies all tensors into a slot of the arena, digests them and seals the slot. If the arena is a window, the rank
    /// sends an additional empty reply before the first byte.
    Fill { slot: u32, step: u64 },
    /// Writes as many bytes as the tensors have to a file, past the page cache, and syncs it: the lower bound of a
    /// save.
    Write { path: PathBuf },
    /// Reads this rank's share, part `rank` of `world`, of each file, past the page cache: the lower bound of a load.
    Read {
        paths: Vec<PathBuf>,
        rank: u64,
        world: u64,
        into: TargetMemory,
    },
    /// Loads the boxes of rank `rank` of `world`. With `check`, the memory is zeroed first, and the rank compares the
    /// loaded bytes with those that were saved.
    Load {
        store: PathBuf,
        step: u64,
        rank: u64,
        world: u64,
        tier: LoadTier,
        into: TargetMemory,
        check: bool,
    },
    /// Runs steps of arithmetic, fills a slot as [`RankRequest::Fill`] does, sends a reply with the stall, and runs
    /// further steps until [`RankRequest::Stop`] arrives.
    Train { slot: u32, step: u64 },
    /// Ends the steps of [`RankRequest::Train`]; the reply has the lost time.
    Stop,
    /// Ends the process.
    End,
}

/// Kind of memory that bytes are read into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TargetMemory {
    /// Touched memory: the tensors of a trainer that has built its model.
    Touched,
    /// Untouched memory: every page is allocated while it is filled.
    Fresh,
}

/// Source of the chunks of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LoadTier {
    /// Arenas of this node, which hold the images of the ranks that saved.
    Arena,
    /// The store on disk, past the page cache.
    Disk,
}

/// Reply of a rank process to a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RankReply {
    /// Duration of the request, in seconds; the stall for [`RankRequest::Train`].
    pub(super) seconds: f64,
    /// Processor time of the whole process during the request, in seconds; 0 for [`RankRequest::Train`].
    pub(super) cpu: f64,
    /// Bytes that a [`RankRequest::Load`] read; 0 for other requests.
    pub(super) read: u64,
    /// Bytes of the tensors that a [`RankRequest::Load`] filled; 0 for other requests.
    pub(super) needed: u64,
    /// Stall and slowdown of later steps in [`RankRequest::Train`], in seconds; 0 for other requests.
    pub(super) lost: f64,
    /// Error text of a failed request.
    pub(super) problem: Option<String>,
}
