//! Raw log lines taken apart: who wrote them, when, in which rank, and what they say once all prefixes are off.
//!
//! Prefixes come in layers (a Kubernetes timestamp before a torchrun rank before a Python logger's clock), so they are peeled
//! one after the other until nothing known is left. Nothing here fails: a line that has no known prefix is all text.

mod clean;
mod container;
mod cursor;
mod launcher;
mod limit;
mod moment;
mod prefix;
pub(crate) mod raw;

pub use clean::clean;
pub use limit::LINE_LIMIT;
pub use moment::{LineClock, YearHint};

use rankguard_model::{Rank, Timestamp};

/// How loud the writer meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the writer's own developers.
    Debug,
    /// Normal operation.
    Info,
    /// Something is odd.
    Warning,
    /// Something failed.
    Error,
    /// Nothing works.
    Critical,
}

/// A line without its prefixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedLine<'a> {
    /// Wall clock of the line. Lines without a zone are read as the clock says ([`LineClock::utc_offset_s`]).
    pub at: Option<Timestamp>,
    /// Time since boot in microseconds, for kernel lines.
    pub since_boot_us: Option<u64>,
    /// Sequence number in the kernel's ring.
    pub kernel_seq: Option<u64>,
    /// A kernel line by its form.
    pub kernel: bool,
    /// Rank in the world, as the prefix tells it.
    pub rank: Option<Rank>,
    /// Rank on its node, where the prefix tells only that (`[default3]:` of torchrun).
    pub local_rank: Option<u32>,
    /// Host named by the prefix.
    pub host: Option<&'a str>,
    /// Level named by the prefix.
    pub level: Option<Level>,
    /// A vendor's event log grades it as news, of which by its own rules nothing fails.
    pub news: bool,
    /// Continuation of the line before (`KEY=value` lines of /dev/kmsg).
    pub continuation: bool,
    /// What is left: the message.
    pub text: &'a str,
    /// The rank is the number of a task of `srun --label`, which is a rank only when no launcher stands between.
    task_label: bool,
}

/// Takes the prefixes off a cleaned line.
pub fn parse<'a>(cleaned: &'a str, clock: &LineClock) -> ParsedLine<'a> {
    let mut line = ParsedLine {
        text: cleaned,
        ..ParsedLine::default()
    };
    // A bound on the layers keeps a hostile line cheap; six is twice what real stacks produce.
    for _ in 0..6 {
        if !prefix::peel(&mut line, clock) {
            break;
        }
    }
    if let (None, Some(since), Some(boot)) = (line.at, line.since_boot_us, clock.boot) {
        line.at = Some(Timestamp(
            boot.0
                .saturating_add(i64::try_from(since).unwrap_or(i64::MAX).saturating_mul(1000)),
        ));
    }
    line
}

#[cfg(test)]
mod tests;
