//! Observations: what triage gives.

use rankguard_model::{Device, Mark, Rank, Timestamp};

/// Lines that belong together and what they say.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The deciding line, without its prefixes.
    pub text: String,
    /// Lines around it, oldest first, without `text` itself.
    pub context: Vec<String>,
    /// How often it was seen, at least 1.
    pub repeats: u32,
    /// What the signatures say, best first; never empty.
    pub marks: Vec<Mark>,
    /// Wall clock of the first line, where the line tells it.
    pub at: Option<Timestamp>,
    /// Time since boot of the first line in microseconds, for kernel lines.
    pub since_boot_us: Option<u64>,
    /// The rank that speaks or is spoken of.
    pub rank: Option<Rank>,
    /// Its rank on the node, where the line tells only that.
    pub local_rank: Option<u32>,
    /// Host named by the line.
    pub host: Option<String>,
    /// The device it is about.
    pub device: Option<Device>,
    /// Number of its first line in the stream, from 1.
    pub line_no: u64,
    /// Number of its last line so far.
    pub last_line_no: u64,
    /// The number of the deciding line.
    pub key_line_no: u64,
}
