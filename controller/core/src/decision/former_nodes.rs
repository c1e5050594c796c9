//! Nodes that a job has left, and those of a job that has finished: their agents hold images of its checkpoints, and the
//! read leases of these, until they are ordered to drop them.
//!
//! They retain them while the job may need them: until a generation without the node has a commit of its own, or the job
//! was stopped, or it finished [`REPORTS_AFTER_END_S`] ago and no save of it can still be committed. After
//! [`IMAGES_AFTER_END_S`] the images of an incomplete save are dropped as well. The order is repeated with every further
//! commit and when the agent joins, until it is answered.

use std::collections::BTreeSet;

use rankguard_model::{AgentOrder, Generation, JobId, NodeId, Timestamp};

use super::DecisionContext;
use crate::Job;
use crate::job::JobPhase;

/// Seconds after the end of a job in which its agents report the saves that its ranks sealed last: a seal may be reported
/// after the exit of its rank.
const REPORTS_AFTER_END_S: u64 = 30;

/// Maximum number of seconds after the end of a job for which the images of an incomplete save are retained.
const IMAGES_AFTER_END_S: u64 = 3_600;

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

    /// Records the nodes of a job that has finished, and when their images are dropped.
    pub(super) fn record_nodes_of_finished(&mut self, name: &JobId) {
        let releases = self.state.releases_former_nodes();
        let job = self
            .state
            .jobs
            .get_mut(name)
            .filter(|job| job.spec.checkpoint.is_some());
        let Some(job) = job.filter(|_| releases) else {
            return;
        };
        job.former_nodes.extend(job.nodes().to_vec());
        self.wait_at_most(name, 1_000 * REPORTS_AFTER_END_S);
    }

    /// Drops the images of a job that finished some time ago, or waits for the commit of its last save.
    pub(super) fn release_finished(&mut self, name: &JobId) {
        self.release_former_nodes(name);
        let finished = self.state.jobs.get(name).filter(|job| !is_settled(job, self.at));
        if finished.is_some() {
            self.wait_at_most(name, 1_000 * IMAGES_AFTER_END_S);
        }
    }

    /// Orders the former nodes of a job to drop its images if the job needs them no longer.
    pub(super) fn release_former_nodes(&mut self, name: &JobId) {
        let at = self.at;
        let Some(job) = self.state.jobs.get(name).filter(|job| is_settled(job, at)) else {
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
        let at = self.at;
        let job = self.state.jobs.get_mut(name);
        if let Some(job) = job.filter(|job| job.generation() == generation && is_settled(job, at)) {
            job.former_nodes.remove(node);
            self.prepare_spares(name);
        }
    }
}

/// Returns true if the job needs no images of the generations before the present one, or none at all because it is over.
fn is_settled(job: &Job, at: Timestamp) -> bool {
    if matches!(job.phase(), JobPhase::Finished) {
        let since_end = job.ended_at().map_or(u64::MAX, |ended| at.since(ended).as_secs());
        return since_end >= IMAGES_AFTER_END_S || since_end >= REPORTS_AFTER_END_S && !job.checkpoints.may_commit();
    }
    let generation = job.generation();
    let newest = job.checkpoints.newest().map(|newest| newest.generation);
    job.is_over() || job.checkpoints.trained() == generation && newest == Some(generation)
}
