//! Signs of life of a generation that reports no steps: output of its ranks, CPU time, commits.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{CaseId, NodeId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

/// Multiple of the stall limit for which ranks that only use CPU time count as alive. A rank that waits in a collective
/// spins, so CPU time alone proves no progress.
const BUSY_LIMITS: u64 = 4;
/// Multiple of the longest commit interval after which missing commits count as a stall.
const COMMIT_GAPS: u64 = 4;

/// Activity of a rank between its step marks, as its agent observes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankActivity {
    /// No growing output, no CPU time.
    Idle,
    /// CPU time, but no growing output.
    Busy,
    /// Growing output of the rank.
    Output,
}

impl RankActivity {
    /// Parses an activity name from an agent's report.
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
    /// Ranks that have shown a sign of life.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    lived: BTreeSet<Rank>,
    /// Time at which all its ranks had started.
    started: Option<Timestamp>,
    /// Time of the first sign of life.
    first: Option<Timestamp>,
    /// Time of the newest output or commit.
    newest: Option<Timestamp>,
    /// Time of the newest commit of this generation.
    committed: Option<Timestamp>,
    /// Longest time between two commits of this generation, or from its start to the first, milliseconds.
    commit_gap_ms: u64,
    /// Time since which the newest reports of all ranks are idle, after a sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle_since: Option<Timestamp>,
    /// Ranks that a signal has stopped, by the newest reports.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    stopped: BTreeSet<Rank>,
    /// Time of the newest activity of each idle rank, if its agent reported it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    last_active: BTreeMap<Rank, Timestamp>,
    /// Case about the absence of signs of life; the next one closes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) case: Option<CaseId>,
    /// Rank that reads its start checkpoint again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restore_wait: Option<RestoreWait>,
}

/// Restore of a rank that its agent tries again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RestoreWait {
    pub(crate) rank: Rank,
    pub(crate) node: NodeId,
    /// Step of the checkpoint, in digits.
    pub(crate) step: String,
    /// Time of the report.
    pub(crate) since: Timestamp,
    /// Failure of the newest attempt then.
    pub(crate) problem: String,
}

impl JobActivity {
    /// Records that all ranks of the generation have started. Reports of ranks that started earlier remain.
    pub(crate) fn start(&mut self, at: Timestamp) {
        self.started = Some(at);
    }

    /// Returns the time at which all ranks of the generation had started.
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.started
    }

    /// Records a report. Returns true if it is the first sign of life.
    pub(crate) fn report(&mut self, at: Timestamp, rank: Rank, activity: RankActivity) -> bool {
        let before = self.ranks.insert(rank, activity);
        if activity == RankActivity::Output || before == Some(RankActivity::Output) {
            self.newest = Some(at);
        }
        let is_first = activity != RankActivity::Idle && self.first.is_none();
        if activity != RankActivity::Idle {
            self.first.get_or_insert(at);
            self.lived.insert(rank);
        }
        self.note_idle(at);
        is_first
    }

    /// Records whether a signal has stopped a rank, and the time of the last activity of an idle rank.
    pub(crate) fn report_detail(&mut self, rank: Rank, is_stopped: bool, active_at: Option<Timestamp>) {
        if is_stopped {
            self.stopped.insert(rank);
        } else {
            self.stopped.remove(&rank);
        }
        if let (Some(since), Some(active_at)) = (self.idle_since, active_at) {
            self.idle_since = Some(since.min(active_at).max(self.started.unwrap_or(active_at)));
        }
    }

    /// Records the newest activity of a rank that is idle. The job is idle since the newest activity of all its ranks, not
    /// since that of the rank that reports last; `was_idle` is true if it was idle before the report.
    pub(crate) fn report_last_activity(&mut self, rank: Rank, active_at: Option<Timestamp>, was_idle: bool) {
        match active_at.filter(|_| self.ranks.get(&rank) == Some(&RankActivity::Idle)) {
            Some(active_at) => drop(self.last_active.insert(rank, active_at)),
            None => drop(self.last_active.remove(&rank)),
        }
        let is_known = self.ranks.keys().all(|rank| self.last_active.contains_key(rank));
        let newest = self.last_active.values().max().copied();
        if let (Some(since), Some(newest)) = (self.idle_since, newest.filter(|_| is_known && !was_idle)) {
            self.idle_since = Some(since.min(newest).max(self.started.unwrap_or(newest)));
        }
    }

    /// Returns the ranks that a signal has stopped, by the newest reports.
    pub fn stopped(&self) -> impl Iterator<Item = Rank> {
        self.stopped.iter().copied()
    }

    fn note_idle(&mut self, at: Timestamp) {
        let is_idle = self.first.is_some() && !self.ranks.is_empty() && !self.is_active();
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(at));
    }

    /// Returns the time since which no rank has written output or used a processor, by the newest reports.
    pub fn idle_since(&self) -> Option<Timestamp> {
        self.idle_since
    }

    /// Returns the time of the newest output or commit, or of the start.
    pub(crate) fn newest_sign(&self) -> Option<Timestamp> {
        self.newest.max(self.started)
    }

    /// Removes the report of a rank after its process has ended.
    pub(crate) fn end_rank(&mut self, at: Timestamp, rank: Rank) {
        self.stopped.remove(&rank);
        self.last_active.remove(&rank);
        if self.ranks.remove(&rank) == Some(RankActivity::Output) {
            self.newest = Some(at);
        }
        self.note_idle(at);
    }

    /// Records a commit of this generation.
    pub(crate) fn commit(&mut self, at: Timestamp) {
        if let Some(before) = self.committed.or(self.started) {
            let gap = u64::try_from(at.millis_since(before)).unwrap_or(0);
            self.commit_gap_ms = self.commit_gap_ms.max(gap);
        }
        self.committed = Some(at);
        self.newest = Some(at);
        self.first.get_or_insert(at);
    }

    /// Returns true after the first sign of life.
    pub fn has_life(&self) -> bool {
        self.first.is_some()
    }

    /// Returns true after a sign of life of each of the `count` ranks of the generation, or after a commit of it.
    pub(crate) fn has_life_of_all(&self, count: usize) -> bool {
        self.has_committed() || self.lived.len() >= count
    }

    /// Returns true if, by the newest reports, a rank uses CPU time or its output grows.
    pub(crate) fn is_active(&self) -> bool {
        self.ranks.values().any(|activity| *activity != RankActivity::Idle)
    }

    /// Returns true if this generation has committed a checkpoint.
    pub fn has_committed(&self) -> bool {
        self.committed.is_some()
    }

    /// Returns the time of the first sign of life.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.first
    }

    /// Returns the time since the first sign of life, milliseconds.
    pub(crate) fn worked_ms(&self, at: Timestamp) -> u64 {
        let worked = self.first.map_or(0, |first| at.millis_since(first));
        u64::try_from(worked).unwrap_or(0)
    }

    /// Returns the time from which the generation counts as hung without further activity: `stall_ms` after the newest
    /// output or commit, [`BUSY_LIMITS`] times that while its ranks use CPU time, and never before [`COMMIT_GAPS`] of
    /// its own commit intervals. Returns `None` while output grows.
    pub(crate) fn hung_from(&self, stall_ms: u64) -> Option<Timestamp> {
        let best = self.ranks.values().max();
        let limit = match best {
            Some(RankActivity::Output) => return None,
            Some(RankActivity::Busy) => stall_ms.saturating_mul(BUSY_LIMITS),
            Some(RankActivity::Idle) | None => stall_ms,
        };
        let limit = limit.max(self.commit_gap_ms.saturating_mul(COMMIT_GAPS));
        let since = self.newest_sign()?;
        Some(since.after(std::time::Duration::from_millis(limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents poll at intervals, so the rank that was active last need not be the last that is reported as idle.
    #[test]
    fn a_job_is_idle_since_the_newest_activity_of_all_its_ranks() {
        let mut activity = JobActivity::default();
        activity.start(NOW);
        activity.report(later(10), Rank(0), RankActivity::Output);
        activity.report(later(10), Rank(1), RankActivity::Output);
        activity.report(later(70), Rank(0), RankActivity::Idle);
        activity.report_last_activity(Rank(0), Some(later(60)), false);
        activity.report(later(75), Rank(1), RankActivity::Idle);
        activity.report_last_activity(Rank(1), Some(later(52)), false);
        assert_eq!(activity.idle_since(), Some(later(60)));
        activity.report(later(90), Rank(1), RankActivity::Idle);
        activity.report_last_activity(Rank(1), Some(later(89)), true);
        assert_eq!(activity.idle_since(), Some(later(60)), "it was idle before");
    }

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
