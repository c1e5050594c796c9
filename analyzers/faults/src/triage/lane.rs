//! Lane: open multi-line units of one rank or one kernel.

use rankguard_model::{Rank, Timestamp};

use super::limits::IDLE;
use super::{oom, traceback};

/// Lane key: host, global rank and local rank of the writer.
pub(super) type LaneKey = (Option<String>, Option<Rank>, Option<u32>);

/// Lane with its trackers; exists while a unit is open.
#[derive(Debug, Default)]
pub(super) struct LaneTrackers {
    pub(super) traceback: traceback::TracebackTracker,
    pub(super) oom: oom::OomTracker,
    last: Timestamp,
    first_line: u64,
    last_line: u64,
}

impl LaneTrackers {
    pub(super) fn touch(&mut self, now: Timestamp, line_no: u64) {
        self.last = now;
        if self.first_line == 0 {
            self.first_line = line_no;
        }
        self.last_line = line_no;
    }

    pub(super) fn last_at(&self) -> Timestamp {
        self.last
    }

    /// Returns the number of its first line; nothing in it is older.
    pub(super) fn first_line(&self) -> u64 {
        self.first_line
    }

    pub(super) fn last_line(&self) -> u64 {
        self.last_line
    }

    pub(super) fn is_open(&self) -> bool {
        self.traceback.is_open() || self.oom.is_open()
    }

    /// Returns the time at which an open unit was quiet for long enough.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.is_open().then(|| self.last.after(IDLE))
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}
