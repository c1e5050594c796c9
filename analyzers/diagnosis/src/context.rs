//! Facts of the fleet that the evidence itself does not carry.

use std::collections::BTreeMap;

use rankguard_model::{Generation, JobId, NodeId, Rank};
use serde::{Deserialize, Serialize};

/// Which jobs run where. Given with every call, so that there is one owner of the truth: the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The jobs that have a generation, by name.
    pub jobs: BTreeMap<JobId, JobContext>,
}

/// One job's generation that may act.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobContext {
    /// The generation that may act; evidence of an older one never opens a case (RG-3).
    pub generation: Generation,
    /// The node of each rank of that generation.
    pub placements: BTreeMap<Rank, NodeId>,
    /// The job is being ended on purpose: exits of its ranks mean nothing.
    pub stopping: bool,
}

impl Context {
    /// The jobs that have ranks on a node.
    pub fn jobs_on<'a>(&'a self, node: &'a NodeId) -> impl Iterator<Item = (&'a JobId, &'a JobContext)> {
        self.jobs
            .iter()
            .filter(move |(_, job)| job.placements.values().any(|placed| placed == node))
    }
}

impl JobContext {
    /// The node that runs a rank.
    pub fn node_of(&self, rank: Rank) -> Option<&NodeId> {
        self.placements.get(&rank)
    }
}
