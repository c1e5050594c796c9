//! What the bench and its ranks say to each other: a line of JSON a message.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a rank is told to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Copies all tensors into memory that was touched before: the floor of a stall.
    Memcpy,
    /// Copies all tensors into a slot of the arena, digests them and seals the slot. Where that is a window it says so before
    /// the first byte, too.
    Fill { slot: u32, step: u64 },
    /// Writes as many bytes as the image has to a file, past the page cache, and syncs it: the floor of a save.
    Write { path: PathBuf },
    /// Reads this rank's share, part `rank` of `world`, of each file, past the page cache: the floor of a load of them.
    Read {
        paths: Vec<PathBuf>,
        rank: u64,
        world: u64,
        into: Destination,
    },
    /// Loads what rank `rank` of `world` holds.
    Load {
        store: PathBuf,
        step: u64,
        rank: u64,
        world: u64,
        tier: Tier,
        into: Destination,
        check: bool,
    },
    /// Computes on this core, saves while it does, and goes on until it is told to stop.
    Train { slot: u32, step: u64 },
    /// Ends the training of [`Ask::Train`].
    Stop,
    /// Ends the process.
    End,
}

/// What memory bytes are read into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Destination {
    /// Memory that was touched before: the tensors of a trainer that has built its model.
    Touched,
    /// Memory that nobody has touched: every page is made while it is filled.
    Fresh,
}

/// Where a load takes chunks from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Tier {
    /// Arenas of this node, which hold the images of the ranks that saved.
    Arena,
    /// The store on disk, past the page cache.
    Disk,
}

/// What it says of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Told {
    /// How long it took.
    pub(super) seconds: f64,
    /// Processor time of the whole process meanwhile.
    pub(super) cpu: f64,
    /// Bytes that were read, where something was.
    pub(super) read: u64,
    /// Bytes that were needed.
    pub(super) needed: u64,
    /// Training time that was lost, for [`Ask::Train`].
    pub(super) lost: f64,
    /// What went wrong.
    pub(super) problem: Option<String>,
}
