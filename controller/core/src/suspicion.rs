//! Checkpoints that nodes have reported damaged or out of reach, and what that proves so far (RG-2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_checkpoint_format::CheckpointId;
use rankguard_checkpoint_schedule::pairs;
use rankguard_model::{Generation, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ChunkName;

/// Checkpoints under suspicion that are remembered; the oldest is forgotten first.
const SUSPECTS_MAX: usize = 8;
/// Reports of one checkpoint that are remembered.
const REPORTS_MAX: usize = 16;

/// A node that reported damage, and the generation whose rank it restored.
pub(crate) type Report = (NodeId, Generation);

/// One checkpoint under suspicion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Suspect {
    reports: BTreeSet<Report>,
    /// Reports that a check has answered: the same node in the same generation starts no other.
    answered: BTreeSet<Report>,
    /// The chunk that the newest report names.
    pub(crate) chunk: Option<ChunkName>,
    /// The controller reads it now.
    checking: bool,
}

/// What is known against the checkpoints of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Suspicions {
    #[serde(with = "pairs")]
    suspects: BTreeMap<CheckpointId, Suspect>,
    /// Checkpoints that could not be read for as long as the job may wait. They are kept, and the job goes on from others.
    passed_over: BTreeSet<CheckpointId>,
    /// Since when the ranks of the job cannot read what they start from.
    unreadable_since: Option<Timestamp>,
}

impl Suspicions {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A node has reported a checkpoint damaged. Returns whether the controller must read it now.
    pub(crate) fn report(&mut self, id: CheckpointId, report: Report, chunk: Option<ChunkName>) -> bool {
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

    /// The controller has read a checkpoint. Gives the nodes that reported it, and whether their reports suffice without what the
    /// controller could read: two nodes, or the only node of a job in two generations.
    pub(crate) fn checked(&mut self, id: CheckpointId, nodes: usize) -> Option<(Vec<NodeId>, bool)> {
        let suspect = self.suspects.get_mut(&id).filter(|suspect| suspect.checking)?;
        suspect.checking = false;
        let reporters: BTreeSet<&NodeId> = suspect.reports.iter().map(|(node, _)| node).collect();
        let generations: BTreeSet<Generation> = suspect.reports.iter().map(|(_, generation)| *generation).collect();
        let confirmed = reporters.len() > 1 || nodes < 2 && generations.len() > 1;
        let reporters = reporters.into_iter().cloned().collect();
        let answered: Vec<Report> = suspect.reports.iter().cloned().collect();
        suspect.answered.extend(answered);
        while suspect.answered.len() > REPORTS_MAX {
            suspect.answered.pop_first();
        }
        Some((reporters, confirmed))
    }

    /// The reports against a checkpoint were wrong: they count no more, and are not checked again.
    pub(crate) fn refute(&mut self, id: CheckpointId) {
        if let Some(suspect) = self.suspects.get_mut(&id) {
            suspect.reports.clear();
        }
    }

    /// The checkpoint is struck off.
    pub(crate) fn clear(&mut self, id: CheckpointId) {
        self.suspects.remove(&id);
    }

    /// Whether a checkpoint is being read by the controller.
    pub(crate) fn is_checking(&self) -> bool {
        self.suspects.values().any(|suspect| suspect.checking)
    }

    /// The checkpoints that the controller reads.
    pub(crate) fn checks(&self) -> Vec<(CheckpointId, Option<ChunkName>)> {
        let open = self.suspects.iter().filter(|(_, suspect)| suspect.checking);
        open.map(|(id, suspect)| (*id, suspect.chunk)).collect()
    }

    /// What the job starts from cannot be read, at this moment. Gives since when, and whether that is new.
    pub(crate) fn unreadable(&mut self, at: Timestamp) -> (Timestamp, bool) {
        let is_new = self.unreadable_since.is_none();
        (*self.unreadable_since.get_or_insert(at), is_new)
    }

    /// The job has made a step, or goes on from another checkpoint.
    pub(crate) fn readable(&mut self) {
        self.unreadable_since = None;
    }

    /// Whether the job waits for its checkpoint to be readable, which it does for at most `limit`.
    pub(crate) fn waits(&self, at: Timestamp, limit: Duration) -> bool {
        self.unreadable_since.is_some_and(|since| at < since.after(limit))
    }

    /// The job does not start from a checkpoint any more.
    pub(crate) fn pass_over(&mut self, id: CheckpointId) {
        self.passed_over.insert(id);
        self.unreadable_since = None;
    }

    /// Whether the job passes over a checkpoint.
    pub(crate) fn is_passed_over(&self, id: CheckpointId) -> bool {
        self.passed_over.contains(&id)
    }

    /// Those do not matter any more.
    pub(crate) fn forget_passed_over(&mut self, which: impl Fn(&CheckpointId) -> bool) {
        self.passed_over.retain(|id| !which(id));
    }

    /// All that it passes over.
    pub(crate) fn passed_over(&self) -> &BTreeSet<CheckpointId> {
        &self.passed_over
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::Step;

    use super::*;

    fn report(node: &str, generation: u64) -> Report {
        (NodeId::from(node), Generation(generation))
    }

    #[test]
    fn rg_2_one_node_alone_proves_nothing_that_the_controller_cannot_read() {
        let id = CheckpointId {
            step: Step(10),
            generation: Generation(1),
        };
        let mut all = Suspicions::default();
        assert!(all.report(id, report("n1", 2), None), "the controller reads it");
        assert!(!all.report(id, report("n1", 2), None), "it does already");
        let unread = |all: &mut Suspicions, nodes| all.checked(id, nodes).map(|(_, confirmed)| confirmed);
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
