//! Logs of a run that just end: they show work and state no end. A machine that lost its power, a run that hangs, and one that
//! is still at work leave such logs.

use std::fmt;

use rankguard_model::{EvidenceSource, Rank, Timestamp};

use crate::incident::ended_well;
use crate::stream::ReadStream;

/// Log that shows work and does not state how its run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEnd {
    /// Name of the log.
    pub file: String,
    /// Rank that wrote it, if it is one rank's.
    pub rank: Option<Rank>,
    /// Line of the last work, from 1.
    pub line: u64,
    /// Time of the last work, if the line has a stamp.
    pub at: Option<Timestamp>,
    /// Text of the last work.
    pub text: String,
    /// Number of lines.
    pub lines: u64,
}

impl fmt::Display for OpenEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {} of {}: the last work", self.file, self.line, self.lines)?;
        if let Some(at) = self.at {
            write!(f, " is of {at}")?;
        }
        let text: String = self.text.chars().take(TEXT).collect();
        write!(f, " (\"{text}\"); the log does not state how the run ended")
    }
}

/// Maximum length of a quoted line, characters.
const TEXT: usize = 80;

/// Returns the logs of jobs that end with work; none if a log states the end of the run.
pub(crate) fn open_ends(streams: &[ReadStream]) -> Vec<OpenEnd> {
    let is_stated = |stream: &ReadStream| {
        stream.records.states_end() || stream.last_lines.failure.is_some() || stream.asks_for_requeue
    };
    if ended_well(streams) || streams.iter().any(is_stated) {
        return Vec::new();
    }
    let of_jobs = streams
        .iter()
        .filter(|stream| matches!(stream.source, EvidenceSource::JobLog | EvidenceSource::Launcher));
    let ends = of_jobs.filter_map(|stream| {
        let work = stream.last_lines.work.as_ref()?;
        Some(OpenEnd {
            file: stream.name.clone(),
            rank: stream.rank,
            line: work.line,
            at: stream.last_lines.worked_at,
            text: work.text.clone(),
            lines: stream.lines,
        })
    });
    ends.collect()
}
