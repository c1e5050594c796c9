//! Parser of raw log lines: writer, time, rank, and the message that remains after all prefixes are removed.
//!
//! Prefixes are layered (a Kubernetes timestamp before a torchrun rank before a Python logger's clock), so they are
//! removed one after the other until no known prefix is left. Parsing never fails: a line without a known prefix is
//! all message.

mod clean;
mod container;
mod cursor;
mod inner_clock;
mod inner_host;
mod launcher;
mod limit;
mod moment;
mod prefix;
pub(crate) mod raw;
mod record;
mod syslog_host;
mod syslog_tag;

pub use clean::clean;
pub use limit::LINE_LIMIT;
pub use moment::{LineClock, YearHint};
pub use syslog_tag::SyslogTag;

use rankguard_model::{Rank, Timestamp};

/// Log level that the writer chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the writer's own developers: `DEBUG`, `TRACE`.
    Debug,
    /// Normal operation: `INFO`, `NOTICE`.
    Info,
    /// Something is odd: `WARNING`, `WARN`.
    Warning,
    /// An operation failed: `ERROR`.
    Error,
    /// The program cannot continue: `CRITICAL`, `FATAL`.
    Critical,
}

/// Log line without its prefixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedLine<'a> {
    /// Wall clock of the line. A clock without a zone is read with [`LineClock::utc_offset_s`].
    pub at: Option<Timestamp>,
    /// Time since boot in microseconds, for kernel lines.
    pub since_boot_us: Option<u64>,
    /// Sequence number in the kernel's ring buffer.
    pub kernel_seq: Option<u64>,
    /// True if the line has the form of a kernel line.
    pub kernel: bool,
    /// Global rank in the prefix.
    pub rank: Option<Rank>,
    /// Local rank on the node, if the prefix has only that (`[default3]:` of torchrun).
    pub local_rank: Option<u32>,
    /// Host in the prefix.
    pub host: Option<&'a str>,
    /// Level in the prefix.
    pub level: Option<LogLevel>,
    /// True if a vendor's event log grades the line as informational: by the vendor's rules no failure.
    pub news: bool,
    /// True for a continuation of the previous line (`KEY=value` lines of /dev/kmsg).
    pub continuation: bool,
    /// Message that remains.
    pub text: &'a str,
    /// True if `rank` is the task number of `srun --label`, which is a rank only if no launcher runs between.
    task_label: bool,
}

/// Removes the prefixes from a cleaned line.
pub fn parse<'a>(cleaned: &'a str, clock: &LineClock) -> ParsedLine<'a> {
    let mut line = ParsedLine {
        text: cleaned,
        ..ParsedLine::default()
    };
    // A bound on the layers limits the cost of a hostile line; six is twice the number that real stacks produce.
    for _ in 0..6 {
        if !prefix::peel(&mut line, clock) {
            break;
        }
    }
    inner_clock::read(&mut line, clock);
    line.host = line.host.or_else(|| inner_host::host(line.text));
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
