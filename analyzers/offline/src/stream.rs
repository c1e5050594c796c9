//! A log that was read: what was seen in it, and where.

use rankguard_diagnosis::Sign;
use rankguard_model::{NodeId, Rank, Source, Timestamp};

use crate::outcome::RunRecords;
use crate::progress::WorkLine;

/// One log that was read.
#[derive(Debug)]
pub struct ReadStream {
    /// What people call it: its path, or the case's stream.
    pub name: String,
    pub(crate) source: Source,
    pub(crate) rank: Option<Rank>,
    pub(crate) node: Option<NodeId>,
    /// Whether its clock was corrected by a measured offset.
    pub(crate) measured: bool,
    /// What was seen, in the order of the lines.
    pub(crate) seen: Vec<Seen>,
    /// Lines that show that work went on, by number, from 1: behind every sign as many as anybody asks for.
    pub(crate) progress: Vec<WorkLine>,
    /// Lines that show that a stretch of work was completed, by number.
    pub(crate) completed: Vec<u64>,
    /// The last line, by number, that tells a loss which is a number.
    pub(crate) finite_loss: Option<u64>,
    /// Records of starts and ends of runs.
    pub(crate) records: RunRecords,
    /// Lines in all.
    pub(crate) lines: u64,
}

/// One observation with its place.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) signs: Vec<Sign>,
    /// Its first and last line, from 1.
    pub(crate) first_line: u64,
    pub(crate) last_line: u64,
    /// The deciding line.
    pub(crate) key_line: u64,
    /// Wall clock, where the line tells it.
    pub(crate) wall: Option<Timestamp>,
    /// A clock that only this stream's lines share: the wall, or time since boot.
    pub(crate) own_clock: Option<Timestamp>,
    /// Whether the program itself says that it tries again.
    pub(crate) retried: bool,
}
