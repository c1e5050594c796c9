//! Signs of life of a generation that reports no steps: output of its ranks, time on processors, commits.

use std::collections::BTreeMap;

use rankguard_model::{Rank, Timestamp};
use serde::{Deserialize, Serialize};

/// Longest times without output or commit for which ranks that only use processors are believed. A rank that waits in a
/// collective spins, so its time on processors alone proves nothing for ever.
const BUSY_LIMITS: u64 = 4;
/// Longest times between two commits that may pass before their absence is strange.
const COMMIT_GAPS: u64 = 4;

/// What an agent sees of a rank between its step marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankActivity {
    /// Neither its output grows nor do its processes use processors.
    Idle,
    /// Its processes use processors.
    Busy,
    /// Its output grows.
    Output,
}

impl RankActivity {
    /// The state of this name, as agents report it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "idle" => Some(Self::Idle),
            "busy" => Some(Self::Busy),
            "output" => Some(Self::Output),
            _ => None,
        }
    }
}

/// Signs of life of one generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobActivity {
    /// Newest report of each rank; agents report only changes.
    ranks: BTreeMap<Rank, RankActivity>,
    /// When its ranks had been started.
    started: Option<Timestamp>,
    /// First sign of life.
    first: Option<Timestamp>,
    /// Newest sign that is more than time on processors.
    newest: Option<Timestamp>,
    /// Newest commit of this generation.
    committed: Option<Timestamp>,
    /// Longest time between two commits of this generation, or its start and the first, milliseconds.
    commit_gap_ms: u64,
}

impl JobActivity {
    /// The ranks of a generation have been started.
    pub(crate) fn start(&mut self, at: Timestamp) {
        *self = Self {
            started: Some(at),
            ..Self::default()
        };
    }

    /// Takes a report. Returns whether it is the first sign of life.
    pub(crate) fn report(&mut self, at: Timestamp, rank: Rank, activity: RankActivity) -> bool {
        let before = self.ranks.insert(rank, activity);
        if activity == RankActivity::Output || before == Some(RankActivity::Output) {
            self.newest = Some(at);
        }
        if activity == RankActivity::Idle {
            return false;
        }
        self.first.replace(self.first.unwrap_or(at)).is_none()
    }

    /// The process of a rank has ended: its last report holds no longer.
    pub(crate) fn end_rank(&mut self, at: Timestamp, rank: Rank) {
        if self.ranks.remove(&rank) == Some(RankActivity::Output) {
            self.newest = Some(at);
        }
    }

    /// A checkpoint of this generation was committed.
    pub(crate) fn commit(&mut self, at: Timestamp) {
        if let Some(before) = self.committed.or(self.started) {
            let gap = u64::try_from(at.millis_since(before)).unwrap_or(0);
            self.commit_gap_ms = self.commit_gap_ms.max(gap);
        }
        self.committed = Some(at);
        self.newest = Some(at);
        self.first.get_or_insert(at);
    }

    /// Whether it has shown any sign of life.
    pub fn has_life(&self) -> bool {
        self.first.is_some()
    }

    /// Whether a rank uses processors or its output grows, as of the newest reports.
    pub(crate) fn is_active(&self) -> bool {
        self.ranks.values().any(|activity| *activity != RankActivity::Idle)
    }

    /// Whether it has committed a checkpoint.
    pub fn has_committed(&self) -> bool {
        self.committed.is_some()
    }

    /// Since its first sign of life, milliseconds.
    pub(crate) fn worked_ms(&self, at: Timestamp) -> u64 {
        let worked = self.first.map_or(0, |first| at.millis_since(first));
        u64::try_from(worked).unwrap_or(0)
    }

    /// When the generation counts as hung unless something more is seen of it: `stall_ms` after the newest output or commit,
    /// four times that while its ranks use processors, and never before four of its own commit intervals. Nothing where its
    /// output grows now.
    pub(crate) fn hung_from(&self, stall_ms: u64) -> Option<Timestamp> {
        let best = self.ranks.values().max();
        let limit = match best {
            Some(RankActivity::Output) => return None,
            Some(RankActivity::Busy) => stall_ms.saturating_mul(BUSY_LIMITS),
            Some(RankActivity::Idle) | None => stall_ms,
        };
        let limit = limit.max(self.commit_gap_ms.saturating_mul(COMMIT_GAPS));
        let since = self.newest.max(self.started)?;
        Some(since.after(std::time::Duration::from_millis(limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

    fn later(millis: u64) -> Timestamp {
        NOW.after(std::time::Duration::from_millis(millis))
    }

    #[test]
    fn processors_alone_are_believed_for_a_bounded_time() {
        let mut activity = JobActivity::default();
        activity.start(NOW);
        assert_eq!(activity.hung_from(100), Some(later(100)));
        assert!(!activity.report(later(10), Rank(0), RankActivity::Idle));
        assert!(activity.report(later(20), Rank(1), RankActivity::Busy));
        assert_eq!(activity.hung_from(100), Some(later(400)));
        activity.report(later(30), Rank(0), RankActivity::Output);
        assert_eq!(activity.hung_from(100), None, "its output grows");
        activity.report(later(40), Rank(0), RankActivity::Idle);
        assert_eq!(activity.hung_from(100), Some(later(440)));
        activity.end_rank(later(50), Rank(1));
        assert_eq!(activity.hung_from(100), Some(later(140)));
        activity.commit(later(90));
        assert_eq!(
            activity.hung_from(100),
            Some(later(90 + 360)),
            "its commits are 90 ms apart"
        );
        assert_eq!(activity.worked_ms(later(120)), 100);
    }
}
