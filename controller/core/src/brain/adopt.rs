//! Between two generations: what the ranks of the last one have sealed is not lost because whoever was to tell of it is gone.
//!
//! Every old rank that can be reached has ended, and the next ones have not started: whatever is whole of the work of the last
//! generation is committed by the authority of the new one (RG-3). The store is asked first, for a shard that is there needs
//! nobody's word. Where a step is known that is not whole, the nodes that are left bring what they hold of it, the nearest
//! first: images in arenas, copies of other nodes' images, images rebuilt out of parity. After each the store is asked again,
//! so that nothing is believed but shards that stand there. All of it has one deadline, and then the job goes on with what is
//! committed.

use std::collections::BTreeSet;

use rankguard_model::{Body, Evidence, Finish, Generation, HeldIn, JobId, NodeId, Order, Peer, ShardSeal, Step};
use serde::{Deserialize, Serialize};

use super::Turn;
use crate::job::rules;
use crate::{Action, Job, Phase};

/// How far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "kebab-case")]
pub enum Adoption {
    /// The store is asked what is there.
    Looking {
        /// What the nodes were asked for last.
        asked: Option<HeldIn>,
    },
    /// Nodes bring what they have.
    Asking {
        /// Out of what.
        from: HeldIn,
        /// Nodes that have not answered.
        waiting: BTreeSet<NodeId>,
    },
    /// What is whole is being committed; then ranks start.
    Committing,
}

impl Turn<'_> {
    /// Old ranks have ended. Without anything to look for, the new ones start at once.
    pub(super) fn adopt(&mut self, name: &JobId, port: u16) {
        let wait = self.state.policy.adopt_ms;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if wait == 0 || job.spec.checkpoint.is_none() || job.checkpoints.trained() == Generation(0) {
            return self.launch(name, port);
        }
        let stage = Adoption::Looking { asked: None };
        job.phase = Phase::Adopting { port, stage };
        self.wait_at_most(name, wait);
        self.look_for_shards(name);
    }

    /// Has the store looked at, where that is what the job waits for.
    pub(super) fn look_for_shards(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let looking = matches!(
            &job.phase,
            Phase::Adopting {
                stage: Adoption::Looking { .. },
                ..
            }
        );
        let Some(policy) = job.spec.checkpoint.as_ref().filter(|_| looking) else {
            return;
        };
        self.actions.push(Action::FindShards {
            store: policy.store.clone(),
            job: name.clone(),
            generation: job.generation,
            of: job.checkpoints.trained(),
            after: job.checkpoints.newest().map(|newest| newest.step),
        });
    }

    /// What the store has.
    pub(super) fn shards_found(
        &mut self,
        name: &JobId,
        generation: Generation,
        seals: &[ShardSeal],
        problem: Option<&str>,
    ) {
        let Some(job) = self.state.jobs.get_mut(name).filter(|job| job.generation == generation) else {
            return;
        };
        let Phase::Adopting {
            stage: Adoption::Looking { asked },
            ..
        } = &job.phase
        else {
            return;
        };
        let asked = *asked;
        let rules = job.spec.checkpoint.as_ref().map(rules).unwrap_or_default();
        for seal in seals {
            job.checkpoints.late(seal.clone(), &rules);
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

    fn ask_to_finish(&mut self, name: &JobId, from: HeldIn) {
        let waiting = self.left_of(name);
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if let Phase::Adopting { stage, .. } = &mut job.phase {
            *stage = Adoption::Asking {
                from,
                waiting: waiting.clone(),
            };
        }
        for node in &waiting {
            self.order_to_finish(name, node);
        }
        self.advance(name);
    }

    /// Nodes of the last generation and of the coming one that can be reached.
    fn left_of(&self, name: &JobId) -> BTreeSet<NodeId> {
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

    /// Orders a node to bring what it has, if that is what the job waits for. May be repeated.
    pub(super) fn order_to_finish(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let Phase::Adopting {
            stage: Adoption::Asking { from, waiting },
            ..
        } = &job.phase
        else {
            return;
        };
        let Some(policy) = job.spec.checkpoint.as_ref().filter(|_| waiting.contains(node)) else {
            return;
        };
        let finish = Finish {
            job: name.clone(),
            generation: job.generation,
            of: job.checkpoints.trained(),
            after: job.checkpoints.newest().map(|newest| newest.step),
            store: policy.store.clone(),
            from: *from,
            peers: self.peers_of(node),
        };
        self.order(node, Order::Finish(finish));
    }

    /// All other nodes that can be reached.
    pub(super) fn peers_of(&self, node: &NodeId) -> Vec<Peer> {
        let others = self.state.fleet.iter();
        let others = others.filter(|(other, entry)| *other != node && entry.lost_since.is_none());
        let peer = |(other, entry): (&NodeId, &crate::Node)| Peer {
            node: other.clone(),
            address: entry.info.image_address.clone(),
            failure_domain: entry.info.failure_domain.clone(),
        };
        others.map(peer).collect()
    }

    /// A node has brought what it had.
    pub(super) fn shards_finished(&mut self, evidence: &Evidence) {
        let Body::ShardsFinished {
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
        let Some(job) = self
            .state
            .jobs
            .get_mut(name)
            .filter(|job| job.generation == *generation)
        else {
            return;
        };
        if let Phase::Adopting {
            stage: Adoption::Asking { from, waiting },
            ..
        } = &mut job.phase
            && from == done
        {
            waiting.remove(node);
        }
        if let Some(problem) = failed {
            self.announce(format!(
                "node {node} could not finish a checkpoint of job {name}: {problem}"
            ));
        }
        self.advance(name);
    }

    /// The last generation said something of its images before it ended, and it is heard only now.
    pub(super) fn heard_late(&mut self, name: &JobId, generation: Generation, body: &Body) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let between = matches!(job.phase, Phase::Fencing { .. } | Phase::Adopting { .. });
        if !between || generation >= job.generation || generation != job.checkpoints.trained() {
            return;
        }
        let rules = job.spec.checkpoint.as_ref().map(rules).unwrap_or_default();
        match body {
            Body::ShardDurable { seal } => job.checkpoints.late(seal.clone(), &rules),
            Body::ShardFailed { step, reason } => job.checkpoints.failed(generation, *step, reason),
            _ => {}
        }
    }

    /// Commits what is whole, the newest first, and goes on when that is done; at once where nothing is.
    pub(super) fn end_adoption(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if let Phase::Adopting { stage, .. } = &mut job.phase {
            *stage = Adoption::Committing;
        }
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

/// Where the nodes are to look next.
fn next_of(job: &Job, asked: Option<HeldIn>) -> Option<HeldIn> {
    let tiers = job.spec.checkpoint.as_ref().map(|policy| &policy.tiers)?;
    let all = [
        (HeldIn::Arenas, true),
        (HeldIn::Copies, tiers.nodes > 0),
        (HeldIn::Parity, tiers.parity.is_some()),
    ];
    let mut later = all.into_iter().filter(|(from, is)| *is && Some(*from) > asked);
    later.next().map(|(from, _)| from)
}
