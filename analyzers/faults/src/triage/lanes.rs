//! Lanes of a stream that have something open, bounded in number and in silence.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;

use super::lane::{Lane, LaneKey};
use super::limits::{LANES, QUIET_LINES};

/// Those with something open.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    open: BTreeMap<LaneKey, Lane>,
    /// Line at which they are looked through for silent ones.
    sweep_at: u64,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn contains(&self, key: &LaneKey) -> bool {
        self.open.contains_key(key)
    }

    /// The lane of a key, a new one where there is none; line `line_no` is its newest.
    pub(super) fn at(&mut self, key: &LaneKey, now: Timestamp, line_no: u64) -> &mut Lane {
        if self.open.is_empty() {
            self.sweep_at = line_no + QUIET_LINES;
        }
        let lane = self.open.entry(key.clone()).or_default();
        lane.touch(now, line_no);
        lane
    }

    pub(super) fn remove(&mut self, key: &LaneKey) -> Option<Lane> {
        self.open.remove(key)
    }

    pub(super) fn keys(&self) -> Vec<LaneKey> {
        self.open.keys().cloned().collect()
    }

    /// The lane that was silent longest, where there is no room for another one.
    pub(super) fn to_evict(&self) -> Option<LaneKey> {
        if self.open.len() < LANES {
            return None;
        }
        let oldest = self.open.iter().min_by_key(|(_, lane)| lane.last_at());
        oldest.map(|(key, _)| key.clone())
    }

    /// Lanes whose writers have been silent while many lines of others went by; looked for once in a while.
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

    /// Lanes that have been quiet for long enough at `now`, and since when.
    pub(super) fn due(&self, now: Timestamp) -> Vec<(LaneKey, Timestamp)> {
        let due = self.open.iter().filter(|(_, lane)| lane.is_due(now));
        due.map(|(key, lane)| (key.clone(), lane.last_at())).collect()
    }

    /// When the next one is due.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.open.values().filter_map(Lane::deadline).min()
    }

    /// Number of the oldest line of which something is open.
    pub(super) fn first_line(&self) -> Option<u64> {
        self.open.values().map(Lane::first_line).min()
    }
}
