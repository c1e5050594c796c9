//! Launch record: orders and first reports about the ranks of a job, with which later reports are compared.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, NodeId, Rank, Step};
use serde::{Deserialize, Serialize};

/// Generations with retained restore points; reports of ranks of older generations are recorded without effect.
const GENERATIONS_MAX: usize = 8;

/// Image members of a job, process ids and restore points of its ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// Process id of each rank of the current generation, as its agent reported the start.
    processes: BTreeMap<Rank, u32>,
    /// Nodes that may read and write images of the job: those of the current generation and of the one that trained
    /// last, sorted and without duplicates.
    members: Vec<NodeId>,
    /// Checkpoints that the ranks of each generation were ordered to load.
    restore_points: BTreeMap<Generation, BTreeSet<(Generation, Step)>>,
}

impl LaunchRecord {
    /// Begins a generation: drops the process ids of the previous one and replaces the members.
    pub(crate) fn begin(&mut self, members: BTreeSet<NodeId>) {
        self.processes.clear();
        self.members = members.into_iter().collect();
    }

    /// Returns the nodes that may read and write images of the job.
    pub(crate) fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// Records the process id of a started rank.
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

    /// Returns the process id of a rank of the current generation.
    pub(crate) fn process_of(&self, rank: Rank) -> Option<u32> {
        self.processes.get(&rank).copied()
    }

    /// Returns the step of the newest checkpoint that ranks of the last generation before this one were ordered to load.
    pub(crate) fn restored_before(&self, generation: Generation) -> Option<Step> {
        let (_, points) = self.restore_points.range(..generation).next_back()?;
        points.iter().map(|(_, step)| *step).max()
    }

    /// Returns the step of the newest checkpoint that ranks of the first generation after this one were ordered to load.
    pub(crate) fn restored_after(&self, generation: Generation) -> Option<Step> {
        let (_, points) = self.restore_points.range(generation.next()..).next()?;
        points.iter().map(|(_, step)| *step).max()
    }

    /// Returns the checkpoints that ranks of a generation were ordered to load.
    pub(crate) fn restored_from(&self, generation: Generation) -> Option<&BTreeSet<(Generation, Step)>> {
        self.restore_points.get(&generation)
    }
}
