//! Nodes that a job has left: their agents hold images of its checkpoints, and the read leases of these, until they are
//! ordered to drop them.
//!
//! They retain them while the job may need them: until a generation without the node has a commit of its own, or the job
//! is over. The order is repeated with every further commit and when the agent joins, until it is answered.

use std::collections::BTreeSet;

use rankguard_model::{AgentOrder, Generation, JobId, NodeId};

use super::DecisionContext;
use crate::Job;

impl DecisionContext<'_> {
    /// Records the nodes of the generation before that a plan leaves.
    pub(super) fn record_former_nodes(&mut self, name: &JobId, planned: &[NodeId]) {
        let releases = self.state.releases_former_nodes();
        let fleet = &self.state.fleet;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !releases || job.spec.checkpoint.is_none() {
            return;
        }
        job.former_nodes.extend(job.nodes().to_vec());
        job.former_nodes
            .retain(|node| !planned.contains(node) && fleet.get(node).is_some());
    }

    /// Orders the former nodes of a job to drop its images if the job needs them no longer.
    pub(super) fn release_former_nodes(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name).filter(|job| is_settled(job)) else {
            return;
        };
        // Standby processes on these nodes would end as well.
        let prepared: BTreeSet<&NodeId> = job.preparation.iter().flat_map(|all| all.nodes()).collect();
        let nodes = job.former_nodes.iter().filter(|node| !prepared.contains(node));
        let nodes: Vec<NodeId> = nodes.filter(|node| self.state.fleet.is_live(node)).cloned().collect();
        let generation = job.generation();
        for node in nodes {
            let order = AgentOrder::Stop {
                job: name.clone(),
                generation,
                grace_ms: 0,
                keeps_images: false,
            };
            self.order(&node, order);
        }
    }

    /// Repeats the order to a node that has joined.
    pub(super) fn release_joined_node(&mut self, node: &NodeId) {
        let is_former = |job: &Job| job.former_nodes.contains(node);
        let jobs = self.state.jobs.iter().filter(|(_, job)| is_former(job));
        let names: Vec<JobId> = jobs.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.release_former_nodes(&name);
        }
    }

    /// Records that a node has dropped what it held of a job.
    pub(super) fn former_node_released(&mut self, name: &JobId, generation: Generation, node: &NodeId) {
        let job = self.state.jobs.get_mut(name);
        if let Some(job) = job.filter(|job| job.generation() == generation && is_settled(job)) {
            job.former_nodes.remove(node);
        }
    }
}

/// Returns true if the job needs no images of the generations before the present one.
fn is_settled(job: &Job) -> bool {
    let generation = job.generation();
    let newest = job.checkpoints.newest().map(|newest| newest.generation);
    job.is_over() || job.checkpoints.trained() == generation && newest == Some(generation)
}
