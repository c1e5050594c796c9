//! Prefix of a line, applied to all messages in the line.

use rankguard_model::{Rank, Timestamp};

use crate::line::ParsedLine;

/// Prefix fields of a line that apply to all messages in it.
#[derive(Debug)]
pub(super) struct LinePrefix {
    at: Option<Timestamp>,
    since_boot_us: Option<u64>,
    kernel: bool,
    rank: Option<Rank>,
    local_rank: Option<u32>,
    host: Option<String>,
}

impl LinePrefix {
    pub(super) fn of(line: &ParsedLine<'_>) -> Self {
        Self {
            at: line.at,
            since_boot_us: line.since_boot_us,
            kernel: line.kernel,
            rank: line.rank,
            local_rank: line.local_rank,
            host: line.host.map(str::to_owned),
        }
    }

    pub(super) fn lend<'a>(&'a self, line: &mut ParsedLine<'a>) {
        line.at = line.at.or(self.at);
        line.since_boot_us = line.since_boot_us.or(self.since_boot_us);
        line.kernel |= self.kernel;
        line.rank = line.rank.or(self.rank);
        line.local_rank = line.local_rank.or(self.local_rank);
        line.host = line.host.or(self.host.as_deref());
    }
}

/// Parses `[Rank 1] NCCL watchdog thread terminated ...`: the form of process groups if the launcher adds no prefix.
pub(super) fn bracketed_rank(text: &str) -> Option<Rank> {
    let (_, rest) = text.split_once("[Rank ")?;
    let (number, _) = rest.split_once(']')?;
    number.parse().ok().map(Rank)
}
