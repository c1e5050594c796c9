//! Silent ranks of a generation, and the ranks that the others most likely wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_diagnosis::{MergedStacks, StallSuspect, merge};
use rankguard_model::{CaseId, NodeId, Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Finding about a rank that a signal had stopped.
const STOPPED_TEXT: &str = "was stopped by a signal (state T); SIGCONT lets it go on";
/// Stopped ranks that a text names.
const STOPPED_NAMED: usize = 4;

/// Silent ranks of a generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SilentRanks {
    silent: BTreeMap<Rank, SilentRank>,
    /// Arrival time of the last step report.
    moved: Option<Timestamp>,
    /// Ranks that NCCL RAS names, each with its text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) named: BTreeMap<Rank, String>,
    /// True if the hang was reported to diagnosis.
    pub(super) told: bool,
    /// Case that waits for a step.
    pub(crate) case: Option<CaseId>,
}

/// Rank that an agent reported silent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SilentRank {
    pub(super) node: NodeId,
    /// Newest step that it completed; `since` is the time of that step.
    pub(super) step: Step,
    pub(super) since: Timestamp,
    /// Stack of its main thread, outermost frame first.
    pub(super) frames: Vec<String>,
    /// True if it was reported to diagnosis as a rank that stands while others make steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_reported: bool,
    /// True if a signal had stopped its process when its silence was reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_stopped: bool,
}

impl SilentRanks {
    pub(super) fn insert(&mut self, rank: Rank, mut silent: SilentRank) {
        let known = self.silent.get(&rank).filter(|known| known.step == silent.step);
        silent.is_reported |= known.is_some_and(|known| known.is_reported);
        self.silent.insert(rank, silent);
    }

    /// Returns the ranks that have stood for `limit` while others made steps, and marks them as reported.
    pub(super) fn take_standing(&mut self, now: Timestamp, limit: Duration) -> Vec<(Rank, SilentRank)> {
        let moved = self.moved;
        let is_standing = |silent: &SilentRank| {
            let due = silent.since.after(limit);
            !silent.is_reported && due <= now && moved.is_some_and(|moved| moved > silent.since)
        };
        let mut standing = Vec::new();
        for (rank, silent) in self.silent.iter_mut().filter(|(_, silent)| is_standing(silent)) {
            silent.is_reported = true;
            standing.push((*rank, silent.clone()));
        }
        standing
    }

    /// Returns true if the rank was reported to diagnosis as standing and has made no step since.
    pub(crate) fn is_standing(&self, rank: Rank) -> bool {
        self.silent.get(&rank).is_some_and(|silent| silent.is_reported)
    }

    /// Returns the time at which the next rank has stood for `limit`.
    pub(super) fn next_standing(&self, limit: Duration) -> Option<Timestamp> {
        let waiting = self.silent.values().filter(|silent| !silent.is_reported);
        waiting.map(|silent| silent.since.after(limit)).min()
    }

    /// Returns the silent ranks with their nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Rank, &NodeId)> {
        self.silent.iter().map(|(rank, silent)| (*rank, &silent.node))
    }

    pub(crate) fn is_silent(&self, rank: Rank) -> bool {
        self.silent.contains_key(&rank)
    }

    /// Returns the time of the newest step of a silent rank.
    pub(crate) fn stepped_at(&self, rank: Rank) -> Option<Timestamp> {
        self.silent.get(&rank).map(|silent| silent.since)
    }

    /// Returns true if a signal had stopped the process of a silent rank.
    pub(crate) fn is_stopped(&self, rank: Rank) -> bool {
        self.silent.get(&rank).is_some_and(|silent| silent.is_stopped)
    }

    /// Records a step report. Returns true if it ends the rank's silence.
    pub(super) fn moved(&mut self, rank: Rank, step: Step, at: Timestamp) -> bool {
        if self.silent.get(&rank).is_some_and(|silent| step <= silent.step) {
            // A late report of an earlier step.
            return false;
        }
        self.moved = Some(at);
        let ends = self.silent.remove(&rank).is_some();
        if ends {
            self.named.clear();
        }
        ends
    }

    /// Returns true if no step was reported for `long`.
    pub(super) fn has_no_steps_for(&self, now: Timestamp, long: Duration) -> bool {
        self.moved.is_none_or(|moved| now.since(moved) >= long)
    }

    /// Returns the time at which the last of the silent ranks fell silent.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.silent.values().map(|silent| silent.since).max()
    }

    /// Returns the reason why the restart waits, if a case waits for a step. No rank has made a step since `since`.
    pub(crate) fn restart_wait_reason(&self, since: Option<Timestamp>, hang_ms: u64) -> Option<String> {
        self.case?;
        let since = since?;
        let due = since.after(Duration::from_millis(hang_ms));
        Some(format!(
            "no rank has made a step since {since}; the job is left alone until {due}, a step clears the case"
        ))
    }

    /// Merges the stacks of the silent ranks.
    pub(super) fn stacks(&self) -> MergedStacks {
        let stacks = self.silent.iter();
        merge(&stacks.map(|(rank, silent)| (*rank, silent.frames.clone())).collect())
    }

    /// Names the silent ranks that a signal had stopped; `None` if there are none.
    pub(crate) fn stopped_text(&self) -> Option<String> {
        let stopped = self.silent.iter().filter(|(_, silent)| silent.is_stopped);
        let text = |(rank, silent): (&Rank, &SilentRank)| {
            format!(
                "rank {rank} on {} has made no step since {} and {STOPPED_TEXT}",
                silent.node, silent.since
            )
        };
        let named: Vec<String> = stopped.clone().take(STOPPED_NAMED).map(text).collect();
        let more = match stopped.count().saturating_sub(STOPPED_NAMED) {
            0 => String::new(),
            more => format!("; {more} more"),
        };
        (!named.is_empty()).then(|| format!("{}{more}", named.join("; ")))
    }

    /// Returns the ranks that the others most likely wait for: ranks that a signal stopped first, then ranks named by NCCL
    /// RAS, then ranks with a stack
    /// unlike the others', then ranks behind in steps. `places` holds the nodes of all ranks, because an unresponsive
    /// rank may not have been reported silent.
    pub(crate) fn suspects(&self, odd: &BTreeMap<Rank, String>, places: &BTreeMap<Rank, NodeId>) -> Vec<StallSuspect> {
        let newest = self.silent.values().map(|silent| silent.step).max();
        let behind = |rank: &Rank| self.silent.get(rank).filter(|silent| Some(silent.step) < newest);
        let late: Vec<Rank> = self
            .silent
            .keys()
            .filter(|rank| behind(rank).is_some())
            .copied()
            .collect();
        let is_stopped = |rank: &Rank| self.is_stopped(*rank);
        let stopped = self.silent.keys().filter(|rank| is_stopped(rank));
        let mut ranks: Vec<Rank> = self.named.keys().chain(odd.keys()).chain(stopped).copied().collect();
        if late.len() * 2 < self.silent.len() {
            ranks.extend(late);
        }
        ranks.sort_by_key(|rank| {
            let named = self.named.contains_key(rank);
            let is_running = !is_stopped(rank);
            (
                is_running,
                !named,
                !odd.contains_key(rank),
                behind(rank).is_none(),
                *rank,
            )
        });
        ranks.dedup();
        let suspect = |rank: Rank| {
            let node = self
                .silent
                .get(&rank)
                .map(|silent| &silent.node)
                .or(places.get(&rank))?;
            let late = behind(&rank).map(|silent| format!("has completed step {} only", silent.step));
            let stopped = is_stopped(&rank).then(|| STOPPED_TEXT.to_owned());
            let why = [stopped, self.named.get(&rank).cloned(), odd.get(&rank).cloned(), late];
            Some(StallSuspect {
                rank,
                node: node.clone(),
                why: why.into_iter().flatten().collect::<Vec<_>>().join(", and "),
                stepped_at: self.stepped_at(rank),
            })
        };
        ranks.into_iter().filter_map(suspect).collect()
    }
}
