//! The silent ranks of a generation, and which of them the others wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_diagnosis::{Merged, Suspect, merge};
use rankguard_model::{CaseId, NodeId, Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// The silent ranks of a generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hang {
    silent: BTreeMap<Rank, Silent>,
    /// When a report of a step last arrived.
    moved: Option<Timestamp>,
    /// Ranks that NCCL itself names, with words that follow the name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) named: BTreeMap<Rank, String>,
    /// Whether diagnosis was told.
    pub(super) told: bool,
    /// The case that waits for a step.
    pub(crate) case: Option<CaseId>,
}

/// One silent rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Silent {
    pub(super) node: NodeId,
    /// The newest step it completed, and when.
    pub(super) step: Step,
    pub(super) since: Timestamp,
    /// Its main thread, outermost frame first.
    pub(super) frames: Vec<String>,
}

impl Hang {
    pub(super) fn insert(&mut self, rank: Rank, silent: Silent) {
        self.silent.insert(rank, silent);
    }

    pub(super) fn is_silent(&self, rank: Rank) -> bool {
        self.silent.contains_key(&rank)
    }

    /// A report of a step arrived. Says whether it ends the rank's silence.
    pub(super) fn moved(&mut self, rank: Rank, step: Step, at: Timestamp) -> bool {
        if self.silent.get(&rank).is_some_and(|silent| step <= silent.step) {
            // A report from before, which arrived late.
            return false;
        }
        self.moved = Some(at);
        let ends = self.silent.remove(&rank).is_some();
        if ends {
            self.named.clear();
        }
        ends
    }

    /// Whether no step was reported for so long.
    pub(super) fn rests(&self, now: Timestamp, long: Duration) -> bool {
        self.moved.is_none_or(|moved| now.since(moved) >= long)
    }

    /// When the last of the silent ranks fell silent: from then on nobody makes steps.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.silent.values().map(|silent| silent.since).max()
    }

    /// When a silence is answered that lasts, of those that are answered after so long.
    pub(super) fn due(&self, hang_ms: u64) -> Option<Timestamp> {
        Some(self.since()?.after(Duration::from_millis(hang_ms)))
    }

    /// Why nothing is done yet, where a case waits for a step.
    pub(crate) fn why_it_waits(&self, hang_ms: u64) -> Option<String> {
        self.case?;
        let (since, due) = (self.since()?, self.due(hang_ms)?);
        Some(format!(
            "no rank has made a step since {since}; the job is left alone until {due}, a step clears the case"
        ))
    }

    /// Where all of them stand.
    pub(super) fn stacks(&self) -> Merged {
        let stacks = self.silent.iter();
        merge(&stacks.map(|(rank, silent)| (*rank, silent.frames.clone())).collect())
    }

    /// Who is most likely waited for: whom NCCL names, then whoever stands elsewhere than the others, and among these whoever
    /// is behind. `places` are the nodes of all ranks: who does not answer may not have been found silent.
    pub(super) fn suspects(&self, odd: &BTreeMap<Rank, String>, places: &BTreeMap<Rank, NodeId>) -> Vec<Suspect> {
        let newest = self.silent.values().map(|silent| silent.step).max();
        let behind = |rank: &Rank| self.silent.get(rank).filter(|silent| Some(silent.step) < newest);
        let late: Vec<Rank> = self
            .silent
            .keys()
            .filter(|rank| behind(rank).is_some())
            .copied()
            .collect();
        let mut ranks: Vec<Rank> = self.named.keys().chain(odd.keys()).copied().collect();
        if late.len() * 2 < self.silent.len() {
            ranks.extend(late);
        }
        ranks.sort_by_key(|rank| {
            let named = self.named.contains_key(rank);
            (!named, !odd.contains_key(rank), behind(rank).is_none(), *rank)
        });
        ranks.dedup();
        let suspect = |rank: Rank| {
            let node = self
                .silent
                .get(&rank)
                .map(|silent| &silent.node)
                .or(places.get(&rank))?;
            let late = behind(&rank).map(|silent| format!("has completed step {} only", silent.step));
            let why = [self.named.get(&rank).cloned(), odd.get(&rank).cloned(), late];
            Some(Suspect {
                rank,
                node: node.clone(),
                why: why.into_iter().flatten().collect::<Vec<_>>().join(", and "),
            })
        };
        ranks.into_iter().filter_map(suspect).collect()
    }
}
