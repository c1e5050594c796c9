//! What was ordered and first reported of the ranks of a job: the basis on which later reports are believed.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, NodeId, Rank, Step};
use serde::{Deserialize, Serialize};

/// Generations of which the restore points are kept; reports of ranks older than this are recorded without effect.
const GENERATIONS_MAX: usize = 8;

/// Members of a job, process ids and restore points of its ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// The process of each rank of the current generation, as its agent reported the start.
    processes: BTreeMap<Rank, u32>,
    /// Nodes that may read and write images of the job: those of the current generation, and those of the one that trained
    /// last, in order and without repetition.
    members: Vec<NodeId>,
    /// The checkpoints that the ranks of each generation were ordered to load.
    restore_points: BTreeMap<Generation, BTreeSet<(Generation, Step)>>,
}

impl LaunchRecord {
    /// A new generation begins: processes of the one before are forgotten.
    pub(crate) fn begin(&mut self, members: BTreeSet<NodeId>) {
        self.processes.clear();
        self.members = members.into_iter().collect();
    }

    /// Nodes that may read and write images of the job.
    pub(crate) fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// A rank was started as this process.
    pub(crate) fn started(&mut self, rank: Rank, pid: u32) {
        self.processes.insert(rank, pid);
    }

    /// Records that ranks of a generation are ordered to load a checkpoint.
    pub(crate) fn restores(&mut self, generation: Generation, checkpoint: (Generation, Step)) {
        self.restore_points.entry(generation).or_default().insert(checkpoint);
        while self.restore_points.len() > GENERATIONS_MAX {
            self.restore_points.pop_first();
        }
    }

    /// The process of a rank of the current generation.
    pub(crate) fn process_of(&self, rank: Rank) -> Option<u32> {
        self.processes.get(&rank).copied()
    }

    /// The checkpoints that ranks of a generation were ordered to load.
    pub(crate) fn restored_from(&self, generation: Generation) -> Option<&BTreeSet<(Generation, Step)>> {
        self.restore_points.get(&generation)
    }
}
