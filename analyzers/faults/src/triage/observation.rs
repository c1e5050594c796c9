//! Observations: output of triage.

use rankguard_model::{Classification, Device, Rank, Timestamp};

/// Lines that belong together, with their marks.
#[derive(Debug, Clone, PartialEq)]
pub struct LogObservation {
    /// Deciding line, without its prefixes.
    pub text: String,
    /// Lines around it, oldest first, without `text` itself.
    pub context: Vec<String>,
    /// Number of occurrences, at least 1.
    pub repeats: u32,
    /// Marks of the matching signatures, best first; never empty.
    pub marks: Vec<Classification>,
    /// Wall clock of the first line, if it has one.
    pub at: Option<Timestamp>,
    /// Time since boot of the first line in microseconds, for kernel lines.
    pub since_boot_us: Option<u64>,
    /// Rank that wrote the line or that the line names.
    pub rank: Option<Rank>,
    /// Local rank on the node, if the line has only that.
    pub local_rank: Option<u32>,
    /// Host named by the line.
    pub host: Option<String>,
    /// Device that the line names.
    pub device: Option<Device>,
    /// Number of its first line in the stream, from 1.
    pub line_no: u64,
    /// Number of its last line so far.
    pub last_line_no: u64,
    /// Number of the deciding line.
    pub key_line_no: u64,
}
