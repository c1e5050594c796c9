//! Result of reading a log: observations with their place, progress and run records.

use std::time::Duration;

use rankguard_diagnosis::Signal;
use rankguard_model::{EvidenceSource, NodeId, Rank, Timestamp};

use crate::attempts::Restarts;
use crate::last_lines::LastLines;
use crate::outcome::RunRecords;
use crate::progress::ProgressLine;

/// Log that was read.
#[derive(Debug)]
pub struct ReadStream {
    /// Display name: its path, or the case's stream.
    pub name: String,
    pub(crate) source: EvidenceSource,
    pub(crate) rank: Option<Rank>,
    pub(crate) node: Option<NodeId>,
    /// True if its clock was corrected by a measured offset.
    pub(crate) measured: bool,
    /// Observations, in line order.
    pub(crate) seen: Vec<PlacedObservation>,
    /// Lines that show work; after every sign at least as many as any use needs.
    pub(crate) progress: Vec<ProgressLine>,
    /// Numbers of lines that show completed work.
    pub(crate) completed: Vec<u64>,
    /// Number of the last line with a finite loss.
    pub(crate) finite_loss: Option<u64>,
    /// Records of starts and ends of runs.
    pub(crate) records: RunRecords,
    /// Starts of the run below pauses.
    pub(crate) restarts: Restarts,
    /// True if the program itself reports in its last lines that it asks for a requeue.
    pub(crate) asks_for_requeue: bool,
    /// Contents of its last lines, for the log of a job.
    pub(crate) last_lines: LastLines,
    /// Number of lines.
    pub(crate) lines: u64,
}

impl ReadStream {
    /// Returns true for the output of a job or of its launcher.
    pub(crate) fn is_of_job(&self) -> bool {
        matches!(self.source, EvidenceSource::JobLog | EvidenceSource::Launcher)
    }
}

/// Observation with its place.
#[derive(Debug, Clone)]
pub(crate) struct PlacedObservation {
    pub(crate) signs: Vec<Signal>,
    /// First and last line, from 1.
    pub(crate) first_line: u64,
    pub(crate) last_line: u64,
    /// Number of the deciding line.
    pub(crate) key_line: u64,
    /// Wall clock, if the line has one.
    pub(crate) wall: Option<Timestamp>,
    /// Clock shared by this stream's lines only: the wall clock, or time since boot.
    pub(crate) own_clock: Option<Timestamp>,
    /// True if a service of the machine reports something that the job may use
    /// ([`crate::services::ServiceRelation::Possible`]).
    pub(crate) is_of_service: bool,
    /// True if the program itself reports a retry.
    pub(crate) retried: bool,
    /// True if its class is that of a quotation in its text only.
    pub(crate) is_quoted: bool,
    /// Wait that the line reports to have ended in vain; zero without one.
    pub(crate) wait: Duration,
    /// Time that a notice announces for the end of its machine.
    pub(crate) announced: Option<Timestamp>,
}

/// Returns the start of a wait that ended at a time.
pub(crate) fn wait_start(at: Timestamp, wait: Duration) -> Timestamp {
    let wait = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
    Timestamp(at.0.saturating_sub(wait))
}
