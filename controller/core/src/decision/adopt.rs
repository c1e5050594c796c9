//! Adoption: commits complete checkpoints that the last generation sealed but did not report before it ended.
//!
//! Every reachable old rank has ended and the next ones have not started; complete checkpoints of the last generation
//! are committed under the authority of the new one (RG-3). The store is listed first, because shards in the store need
//! no report; it also shows commits that the journal lacks ([`super::store_commits`]). If a later step was sealed and is incomplete, the remaining nodes write the shards they hold, nearest
//! source first: images in arenas, copies of other nodes' images, images rebuilt from parity.
//!
//! The store is listed again after each source, and only shards found there count. One deadline covers the whole
//! adoption; then the job continues from the newest commit.

use std::collections::BTreeSet;

use rankguard_model::{
    AgentOrder, Evidence, EvidenceBody, FinishOrder, Generation, ImageLocation, JobId, NodeId, PeerAgent, ShardSeal,
    Step,
};
use serde::{Deserialize, Serialize};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::job::rules;
use crate::{Action, Job};

/// Stage of the adoption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "kebab-case")]
pub enum AdoptionStage {
    /// The store is being listed.
    Looking {
        /// Source that the nodes were asked for last.
        asked: Option<ImageLocation>,
    },
    /// Nodes are writing shards to the store.
    Asking {
        /// Source of the shards.
        from: ImageLocation,
        /// Nodes that have not answered.
        waiting: BTreeSet<NodeId>,
    },
    /// Complete checkpoints are being committed; then ranks start.
    Committing,
}

impl DecisionContext<'_> {
    /// Begins the adoption after old ranks have ended; launches at once if there is nothing to adopt.
    pub(super) fn adopt(&mut self, name: &JobId, port: u16) {
        let wait = self.state.policy.adopt_ms;
        let may_have_commits = self.may_have_store_commits(name);
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let has_trained = job.checkpoints.trained() != Generation(0);
        if wait == 0 || job.spec.checkpoint.is_none() || !(has_trained || may_have_commits) {
            return self.launch(name, port);
        }
        job.adopt(port);
        self.wait_at_most(name, wait);
        self.look_for_shards(name);
    }

    /// Requests a listing of the store if the job is in that stage.
    pub(super) fn look_for_shards(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let looking = matches!(job.adoption(), Some(AdoptionStage::Looking { .. }));
        let Some(policy) = job.spec.checkpoint.as_ref().filter(|_| looking) else {
            return;
        };
        self.actions.push(Action::FindShards {
            store: policy.store.clone(),
            job: name.clone(),
            generation: job.generation(),
            of: job.checkpoints.trained(),
            after: job.checkpoints.newest().map(|newest| newest.step),
        });
    }

    /// Handles the listing of the store.
    pub(super) fn shards_found(
        &mut self,
        name: &JobId,
        generation: Generation,
        seals: &[ShardSeal],
        problem: Option<&str>,
    ) {
        let retains_complete = self.state.has_exact_cases();
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        let Some(AdoptionStage::Looking { asked }) = job.adoption() else {
            return;
        };
        let asked = *asked;
        let rules = job.spec.checkpoint.as_ref().map(rules).unwrap_or_default();
        if retains_complete {
            job.checkpoints.retain_complete_attempts();
        }
        for seal in seals {
            job.checkpoints.record_late_shard(seal.clone(), &rules);
        }
        if retains_complete {
            job.checkpoints.record_listed_shards(seals);
        }
        let next = job.checkpoints.is_open().then(|| next_of(job, asked)).flatten();
        if let Some(problem) = problem {
            self.announce(format!(
                "what is left of job {name} in its store was not seen: {problem}"
            ));
        }
        match next {
            Some(from) => self.ask_to_finish(name, from),
            None => self.end_adoption(name),
        }
    }

    fn ask_to_finish(&mut self, name: &JobId, from: ImageLocation) {
        let waiting = self.live_nodes_of(name);
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        job.set_adoption(AdoptionStage::Asking {
            from,
            waiting: waiting.clone(),
        });
        for node in &waiting {
            self.order_to_finish(name, node);
        }
        self.advance(name);
    }

    /// Returns the live nodes of the last generation and of the coming one.
    fn live_nodes_of(&self, name: &JobId) -> BTreeSet<NodeId> {
        let Some(job) = self.state.jobs.get(name) else {
            return BTreeSet::new();
        };
        let trained = job.checkpoints.trained();
        let before = self
            .state
            .plans
            .values()
            .filter(|plan| plan.job == *name && plan.generation == trained);
        let nodes = before.flat_map(|plan| &plan.nodes).chain(job.nodes());
        nodes.filter(|node| self.state.fleet.is_live(node)).cloned().collect()
    }

    /// Orders a node to write its shards if the job waits for that. Repeating the order is harmless.
    pub(super) fn order_to_finish(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let Some(AdoptionStage::Asking { from, waiting }) = job.adoption() else {
            return;
        };
        let Some(policy) = job.spec.checkpoint.as_ref().filter(|_| waiting.contains(node)) else {
            return;
        };
        let finish = FinishOrder {
            job: name.clone(),
            generation: job.generation(),
            of: job.checkpoints.trained(),
            after: job.checkpoints.newest().map(|newest| newest.step),
            store: policy.store.clone(),
            from: *from,
            peers: self.peers_of(node),
        };
        self.order(node, AgentOrder::Finish(finish));
    }

    /// Returns all other live nodes.
    pub(super) fn peers_of(&self, node: &NodeId) -> Vec<PeerAgent> {
        let others = self.state.fleet.iter();
        let others = others.filter(|(other, entry)| *other != node && entry.lost_since.is_none());
        let peer = |(other, entry): (&NodeId, &crate::Node)| PeerAgent {
            node: other.clone(),
            address: entry.info.image_address.clone(),
            failure_domain: entry.info.failure_domain.clone(),
        };
        others.map(peer).collect()
    }

    /// Handles a node's report that it has written its shards.
    pub(super) fn shards_finished(&mut self, evidence: &Evidence) {
        let EvidenceBody::ShardsFinished {
            job: name,
            generation,
            from: done,
            failed,
            ..
        } = &evidence.body
        else {
            return;
        };
        let node = &evidence.id.node;
        let Some(job) = self.state.jobs.in_generation(name, *generation) else {
            return;
        };
        job.shards_written(node, *done);
        if let Some(problem) = failed {
            self.announce(format!(
                "node {node} could not finish a checkpoint of job {name}: {problem}"
            ));
        }
        self.advance(name);
    }

    /// Handles a late shard report of the generation that trained last.
    pub(super) fn late_shard_report(&mut self, name: &JobId, generation: Generation, body: &EvidenceBody) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !job.is_between_generations() || generation >= job.generation() || generation != job.checkpoints.trained() {
            return;
        }
        let rules = job.spec.checkpoint.as_ref().map(rules).unwrap_or_default();
        match body {
            EvidenceBody::ShardDurable { seal } => job.checkpoints.record_late_shard(seal.clone(), &rules),
            EvidenceBody::ShardFailed { step, reason } => job.checkpoints.failed(generation, *step, reason),
            _ => {}
        }
    }

    /// Commits the newest complete checkpoint; the job advances when no manifest is left to write.
    pub(super) fn end_adoption(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        job.set_adoption(AdoptionStage::Committing);
        let manifest = job.checkpoints.complete(name, job.checkpoints.trained());
        if let Some(manifest) = &manifest {
            let step: Step = manifest.step;
            self.announce(format!(
                "step {step} of job {name} was sealed by generation {} and is committed now that its ranks are gone",
                manifest.generation
            ));
        }
        self.commit(name, manifest);
        self.advance(name);
    }
}

/// Returns the next source to ask the nodes for.
fn next_of(job: &Job, asked: Option<ImageLocation>) -> Option<ImageLocation> {
    let tiers = job.spec.checkpoint.as_ref().map(|policy| &policy.tiers)?;
    let all = [
        (ImageLocation::Arenas, true),
        (ImageLocation::Copies, tiers.nodes > 0),
        (ImageLocation::Parity, tiers.parity.is_some()),
    ];
    let mut later = all.into_iter().filter(|(from, is)| *is && Some(*from) > asked);
    later.next().map(|(from, _)| from)
}
