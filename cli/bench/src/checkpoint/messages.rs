//! Messages between the bench and its ranks: one JSON line each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Command to a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RankRequest {
    /// Copies all tensors into touched memory: the lower bound of a stall.
    Memcpy,
    /// Copies all tensors into a slot of the arena, digests them and seals the slot. For a window the rank also sends a
    /// message before the first byte.
    Fill { slot: u32, step: u64 },
    /// Writes as many bytes as the image has to a file, past the page cache, and syncs it: the lower bound of a save.
    Write { path: PathBuf },
    /// Reads this rank's share, part `rank` of `world`, of each file, past the page cache: the lower bound of a load.
    Read {
        paths: Vec<PathBuf>,
        rank: u64,
        world: u64,
        into: TargetMemory,
    },
    /// Loads the boxes of rank `rank` of `world`.
    Load {
        store: PathBuf,
        step: u64,
        rank: u64,
        world: u64,
        tier: LoadTier,
        into: TargetMemory,
        check: bool,
    },
    /// Computes on this core, saves meanwhile, and continues until [`Ask::Stop`].
    Train { slot: u32, step: u64 },
    /// Ends the training of [`RankRequest::Train`].
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

/// Result of a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RankReply {
    /// Duration of the command, in seconds.
    pub(super) seconds: f64,
    /// Processor time of the whole process during the command, in seconds.
    pub(super) cpu: f64,
    /// Bytes read; 0 for commands that read nothing.
    pub(super) read: u64,
    /// Bytes that the load needed.
    pub(super) needed: u64,
    /// Lost training time for [`RankRequest::Train`], in seconds.
    pub(super) lost: f64,
    /// Error text of a failed command.
    pub(super) problem: Option<String>,
}
