//! Checkpoints that nodes reported as damaged or unreadable, and the evidence against them so far (RG-2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_checkpoint_format::CheckpointId;
use rankguard_checkpoint_schedule::pairs;
use rankguard_model::{Generation, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ChunkName;

/// Checkpoints with reports; the oldest is dropped first.
const SUSPECTS_MAX: usize = 8;
/// Reports retained per checkpoint.
const REPORTS_MAX: usize = 16;

/// Node that reported damage, and the generation of the rank that it restored.
pub(crate) type DamageReport = (NodeId, Generation);

/// Checkpoint with damage reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SuspectCheckpoint {
    reports: BTreeSet<DamageReport>,
    /// Reports that a check has answered: a repeated report of the same node and generation starts no further check.
    answered: BTreeSet<DamageReport>,
    /// Chunk that the newest report names.
    pub(crate) chunk: Option<ChunkName>,
    /// True while the controller reads it.
    checking: bool,
}

/// Damage reports and unreadable checkpoints of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSuspicions {
    #[serde(with = "pairs")]
    suspects: BTreeMap<CheckpointId, SuspectCheckpoint>,
    /// Checkpoints that were unreadable for the longest allowed wait. They are retained, and the job starts from
    /// others.
    passed_over: BTreeSet<CheckpointId>,
    /// Time since which the ranks of the job cannot read their start checkpoint.
    unreadable_since: Option<Timestamp>,
}

impl CheckpointSuspicions {
    /// Returns true if there are no reports.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Records a damage report. Returns true if the controller must read the checkpoint now.
    pub(crate) fn report(&mut self, id: CheckpointId, report: DamageReport, chunk: Option<ChunkName>) -> bool {
        if self.suspects.len() >= SUSPECTS_MAX && !self.suspects.contains_key(&id) {
            self.suspects.pop_first();
        }
        let suspect = self.suspects.entry(id).or_default();
        if suspect.answered.contains(&report) {
            return false;
        }
        if suspect.reports.len() < REPORTS_MAX {
            suspect.reports.insert(report);
        }
        let begins = !suspect.checking;
        if begins {
            suspect.chunk = chunk;
        }
        suspect.checking = true;
        begins
    }

    /// Records the end of a check. Returns the nodes that reported the checkpoint, and true if their reports suffice
    /// without a successful read by the controller: two nodes, or the only node of a job in two generations.
    pub(crate) fn checked(&mut self, id: CheckpointId, nodes: usize) -> Option<(Vec<NodeId>, bool)> {
        let suspect = self.suspects.get_mut(&id).filter(|suspect| suspect.checking)?;
        suspect.checking = false;
        let reporters: BTreeSet<&NodeId> = suspect.reports.iter().map(|(node, _)| node).collect();
        let generations: BTreeSet<Generation> = suspect.reports.iter().map(|(_, generation)| *generation).collect();
        let confirmed = reporters.len() > 1 || nodes < 2 && generations.len() > 1;
        let reporters = reporters.into_iter().cloned().collect();
        let answered: Vec<DamageReport> = suspect.reports.iter().cloned().collect();
        suspect.answered.extend(answered);
        while suspect.answered.len() > REPORTS_MAX {
            suspect.answered.pop_first();
        }
        Some((reporters, confirmed))
    }

    /// Clears the reports against an intact checkpoint; the same reports start no further check.
    pub(crate) fn refute(&mut self, id: CheckpointId) {
        if let Some(suspect) = self.suspects.get_mut(&id) {
            suspect.reports.clear();
        }
    }

    /// Drops the reports about a checkpoint that was struck off.
    pub(crate) fn clear(&mut self, id: CheckpointId) {
        self.suspects.remove(&id);
    }

    /// Returns true if the controller is reading a checkpoint.
    pub(crate) fn is_checking(&self) -> bool {
        self.suspects.values().any(|suspect| suspect.checking)
    }

    /// Returns the checkpoints that the controller is reading.
    pub(crate) fn checks(&self) -> Vec<(CheckpointId, Option<ChunkName>)> {
        let open = self.suspects.iter().filter(|(_, suspect)| suspect.checking);
        open.map(|(id, suspect)| (*id, suspect.chunk)).collect()
    }

    /// Records that the start checkpoint is unreadable. Returns since when, and true if this is new.
    pub(crate) fn unreadable(&mut self, at: Timestamp) -> (Timestamp, bool) {
        let is_new = self.unreadable_since.is_none();
        (*self.unreadable_since.get_or_insert(at), is_new)
    }

    /// Ends the unreadable period: the job made a step, or starts from another checkpoint.
    pub(crate) fn readable(&mut self) {
        self.unreadable_since = None;
    }

    /// Returns the time since which the start checkpoint cannot be read.
    pub(crate) fn unreadable_since(&self) -> Option<Timestamp> {
        self.unreadable_since
    }

    /// Returns true if the job waits for its checkpoint to become readable, for at most `limit`.
    pub(crate) fn waits(&self, at: Timestamp, limit: Duration) -> bool {
        self.unreadable_since.is_some_and(|since| at < since.after(limit))
    }

    /// Excludes a checkpoint as a start of the job.
    pub(crate) fn pass_over(&mut self, id: CheckpointId) {
        self.passed_over.insert(id);
        self.unreadable_since = None;
    }

    /// Returns true if the job passes over a checkpoint.
    pub(crate) fn is_passed_over(&self, id: CheckpointId) -> bool {
        self.passed_over.contains(&id)
    }

    /// Drops the passed-over checkpoints that match.
    pub(crate) fn forget_passed_over(&mut self, which: impl Fn(&CheckpointId) -> bool) {
        self.passed_over.retain(|id| !which(id));
    }

    /// Returns all passed-over checkpoints.
    pub(crate) fn passed_over(&self) -> &BTreeSet<CheckpointId> {
        &self.passed_over
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::Step;

    use super::*;

    fn report(node: &str, generation: u64) -> DamageReport {
        (NodeId::from(node), Generation(generation))
    }

    #[test]
    fn rg_2_one_node_alone_proves_nothing_that_the_controller_cannot_read() {
        let id = CheckpointId {
            step: Step(10),
            generation: Generation(1),
        };
        let mut all = CheckpointSuspicions::default();
        assert!(all.report(id, report("n1", 2), None), "the controller reads it");
        assert!(!all.report(id, report("n1", 2), None), "it does already");
        let unread = |all: &mut CheckpointSuspicions, nodes| all.checked(id, nodes).map(|(_, confirmed)| confirmed);
        assert_eq!(unread(&mut all, 2), Some(false));
        assert_eq!(unread(&mut all, 2), None, "no check is open");
        assert!(all.report(id, report("n1", 3), None));
        assert_eq!(unread(&mut all, 2), Some(false), "the same node of two");
        assert!(!all.report(id, report("n1", 3), None), "it was answered");
        assert!(all.report(id, report("n2", 3), None));
        assert_eq!(unread(&mut all, 2), Some(true), "two nodes");
        all.clear(id);
        assert!(all.report(id, report("n1", 3), None) && all.is_checking());
        assert_eq!(unread(&mut all, 1), Some(false));
        assert!(!all.is_checking());
        assert!(all.report(id, report("n1", 4), None));
        assert_eq!(unread(&mut all, 1), Some(true), "the only node, in two generations");
        all.clear(id);
        assert!(all.is_empty());
    }
}
