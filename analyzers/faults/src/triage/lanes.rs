//! Lanes of a stream with an open unit, bounded in number and in silence.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;

use super::lane::{LaneKey, LaneTrackers};
use super::limits::{LANES, QUIET_LINES};

/// Open lanes by key.
#[derive(Debug, Default)]
pub(super) struct LaneTable {
    open: BTreeMap<LaneKey, LaneTrackers>,
    /// Line number of the next sweep for silent lanes.
    sweep_at: u64,
}

impl LaneTable {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn contains(&self, key: &LaneKey) -> bool {
        self.open.contains_key(key)
    }

    /// Returns the lane of a key, created if absent, and records `line_no` as its newest line.
    pub(super) fn at(&mut self, key: &LaneKey, now: Timestamp, line_no: u64) -> &mut LaneTrackers {
        if self.open.is_empty() {
            self.sweep_at = line_no + QUIET_LINES;
        }
        let lane = self.open.entry(key.clone()).or_default();
        lane.touch(now, line_no);
        lane
    }

    pub(super) fn remove(&mut self, key: &LaneKey) -> Option<LaneTrackers> {
        self.open.remove(key)
    }

    pub(super) fn keys(&self) -> Vec<LaneKey> {
        self.open.keys().cloned().collect()
    }

    /// Returns the lane that was silent longest, if the limit is reached.
    pub(super) fn to_evict(&self) -> Option<LaneKey> {
        if self.open.len() < LANES {
            return None;
        }
        let oldest = self.open.iter().min_by_key(|(_, lane)| lane.last_at());
        oldest.map(|(key, _)| key.clone())
    }

    /// Returns lanes without new lines while many lines of other writers passed; sweeps only every few
    /// thousand lines.
    pub(super) fn silent(&mut self, line_no: u64) -> Vec<LaneKey> {
        if self.open.is_empty() || line_no < self.sweep_at {
            return Vec::new();
        }
        self.sweep_at = line_no + QUIET_LINES / 4;
        let silent = self
            .open
            .iter()
            .filter(|(_, lane)| lane.last_line() + QUIET_LINES <= line_no);
        silent.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the lanes that were quiet for long enough at `now`, each with its last time.
    pub(super) fn due(&self, now: Timestamp) -> Vec<(LaneKey, Timestamp)> {
        let due = self.open.iter().filter(|(_, lane)| lane.is_due(now));
        due.map(|(key, lane)| (key.clone(), lane.last_at())).collect()
    }

    /// Returns the time at which the next lane is due.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.open.values().filter_map(LaneTrackers::deadline).min()
    }

    /// Returns the number of the oldest line of an open unit.
    pub(super) fn first_line(&self) -> Option<u64> {
        self.open.values().map(LaneTrackers::first_line).min()
    }
}
