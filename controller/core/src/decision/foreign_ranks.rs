//! Foreign ranks: running ranks of generations that another journal has begun.
//!
//! A controller with an empty or another state directory meets agents with ranks that it has no record of. Nothing shows
//! that these ranks are stale: no other generation of their job acts under this journal (RG-3), and training continues
//! when a controller is lost (RG-5). So they run on, and their nodes take no work. An operator ends them by cancelling
//! the job, or replaces them by resuming it: its next generation begins above theirs, and theirs is fenced.
//!
//! Ranks of a generation that this journal has begun are never foreign. If their job has been removed since, it is over.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{
    AgentOrder, Entity, Evidence, EvidenceBody, Generation, JobId, NodeId, NodeInfo, ProcessExit, RankRef, RunningRank,
    Step, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{DecisionContext, STOP_GRACE_MS};
use crate::DecisionState;

/// Ended foreign jobs that are retained; the one that ended first is dropped.
const ENDS_MAX: usize = 64;

/// Ends of foreign jobs, for display.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForeignEnds(BTreeMap<JobId, ForeignEnd>);

/// End of a foreign job, as far as its agents reported it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForeignEnd {
    /// Time of the newest exit, or of the cancellation.
    pub(crate) at: Timestamp,
    pub(crate) generation: Generation,
    /// Newest step of its ended ranks.
    pub(crate) step: Option<Step>,
    /// Ranks with reported exits.
    pub(crate) ranks: u32,
    /// First exit with a failure.
    pub(crate) failure: Option<String>,
    /// True if an operator cancelled it.
    pub(crate) is_cancelled: bool,
    /// Name in the certificate of that operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancelled_by: Option<String>,
}

impl ForeignEnds {
    fn record(&mut self, job: &JobId, at: Timestamp, change: impl FnOnce(&mut ForeignEnd)) {
        if self.0.len() >= ENDS_MAX && !self.0.contains_key(job) {
            let oldest = self.0.iter().min_by_key(|(_, end)| end.at);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.0.remove(&oldest);
            }
        }
        let end = self.0.entry(job.clone()).or_default();
        end.at = at;
        change(end);
    }

    pub(crate) fn remove(&mut self, job: &JobId) {
        self.0.remove(job);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobId, &ForeignEnd)> {
        self.0.iter()
    }
}

impl DecisionState {
    /// Returns the nodes with foreign ranks of a job.
    pub fn foreign_nodes(&self, job: &JobId) -> Vec<&NodeId> {
        let has_some = |running: &RunningRank| running.rank.job == *job;
        let nodes = self.fleet.iter();
        let nodes = nodes.filter(|(_, node)| node.foreign.iter().any(has_some));
        nodes.map(|(name, _)| name).collect()
    }
}

impl DecisionContext<'_> {
    /// Records the foreign ranks of a joining node.
    pub(super) fn hold_foreign_ranks(&mut self, info: &NodeInfo) {
        if !self.state.holds_foreign_ranks() {
            return;
        }
        let own: BTreeSet<&JobId> = info
            .history
            .fences
            .iter()
            .filter(|fence| self.state.lives.has_begun(fence.life))
            .map(|fence| &fence.job)
            .collect();
        let is_fenced = |job: &JobId| {
            let node = self.state.fleet.get(&info.node);
            node.is_some_and(|node| node.fences.contains_key(job))
        };
        let is_foreign = |running: &&RunningRank| {
            let job = &running.rank.job;
            !self.state.has_job_name(job) && !own.contains(job) && !is_fenced(job)
        };
        let foreign: Vec<RunningRank> = info.running.iter().filter(is_foreign).cloned().collect();
        let Some(node) = self.state.fleet.get_mut(&info.node) else {
            return;
        };
        let is_known = node.foreign.len() == foreign.len()
            && node
                .foreign
                .iter()
                .zip(&foreign)
                .all(|(known, new)| known.rank == new.rank);
        node.foreign.clone_from(&foreign);
        if !is_known {
            for text in texts(&info.node, &foreign) {
                self.announce(text);
            }
        }
    }

    /// Returns true if a rank on a node is foreign.
    pub(super) fn is_foreign(&self, node: &NodeId, rank: &RankRef) -> bool {
        let node = self.state.fleet.get(node);
        node.is_some_and(|node| node.foreign.iter().any(|foreign| foreign.rank == *rank))
    }

    /// Ends the foreign ranks of a job: an operator cancelled it, or submitted a job with its name.
    /// `by` is the name in the operator's certificate.
    pub(super) fn end_foreign_ranks(&mut self, name: &JobId, by: Option<&str>) {
        let nodes: Vec<NodeId> = self.state.foreign_nodes(name).into_iter().cloned().collect();
        let at = self.at;
        if self.state.jobs.contains_key(name) {
            self.state.foreign_ends.remove(name);
        } else if !nodes.is_empty() {
            self.state.foreign_ends.record(name, at, |end| {
                end.is_cancelled = true;
                end.cancelled_by = by.map(str::to_owned);
            });
        }
        for node in nodes {
            let Some(entry) = self.state.fleet.get(&node) else {
                continue;
            };
            let theirs = entry.foreign.iter().filter(|foreign| foreign.rank.job == *name);
            let generation = theirs.map(|foreign| foreign.rank.generation).max().unwrap_or_default();
            for text in texts(&node, &entry.foreign) {
                self.announce(format!("{text}; they are ended now"));
            }
            self.require_fence(&node, name, generation.next(), None);
            self.order(
                &node,
                AgentOrder::Stop {
                    job: name.clone(),
                    generation,
                    grace_ms: STOP_GRACE_MS,
                    keeps_images: false,
                },
            );
        }
    }

    /// Records the step of a foreign rank. Returns true if the evidence is one.
    pub(super) fn foreign_rank_stepped(&mut self, evidence: &Evidence) -> bool {
        let Some((rank, node)) = rank_on_node(&evidence.entity) else {
            return false;
        };
        let EvidenceBody::Progress { step, .. } = &evidence.body else {
            return false;
        };
        let entry = self.state.fleet.get_mut(node);
        let mut known = entry.into_iter().flat_map(|entry| &mut entry.foreign);
        let Some(foreign) = known.find(|foreign| foreign.rank == rank) else {
            return false;
        };
        foreign.step = foreign.step.max(Some(*step));
        true
    }

    /// Handles the exit of a foreign rank. Returns true if the evidence is one.
    pub(super) fn foreign_rank_ended(&mut self, evidence: &Evidence) -> bool {
        let Some((rank, node)) = rank_on_node(&evidence.entity) else {
            return false;
        };
        let EvidenceBody::RankExited { exit, .. } = &evidence.body else {
            return false;
        };
        if !self.is_foreign(node, &rank) {
            return false;
        }
        self.announce(format!(
            "rank {} of job {}, generation {}, on node {node} has ended ({exit}); this journal has no record of the job",
            rank.rank, rank.job, rank.generation
        ));
        let entry = self.state.fleet.get(node);
        let known = entry.and_then(|entry| entry.foreign.iter().find(|foreign| foreign.rank == rank));
        let step = known.and_then(|foreign| foreign.step);
        let at = self.at;
        let failure = (*exit != ProcessExit::Code(0)).then(|| format!("rank {} on node {node}: {exit}", rank.rank));
        self.state.foreign_ends.record(&rank.job, at, |end| {
            end.generation = end.generation.max(rank.generation);
            end.step = end.step.max(step);
            end.ranks += 1;
            if end.failure.is_none() {
                end.failure = failure;
            }
        });
        self.forget_foreign_ranks(node, |known| *known == rank);
        true
    }

    /// Removes foreign ranks that have ended. The node takes work again when it has none left.
    pub(super) fn forget_foreign_ranks(&mut self, node: &NodeId, which: impl Fn(&RankRef) -> bool) {
        let Some(entry) = self.state.fleet.get_mut(node) else {
            return;
        };
        let before = entry.foreign.len();
        entry.foreign.retain(|foreign| !which(&foreign.rank));
        if before > 0 && entry.foreign.is_empty() {
            self.offer_node();
        }
    }
}

/// Returns the rank of evidence about a rank, and its node.
fn rank_on_node(entity: &Entity) -> Option<(RankRef, &NodeId)> {
    let Entity::Rank {
        job,
        generation,
        rank,
        node,
    } = entity
    else {
        return None;
    };
    let rank = RankRef {
        job: job.clone(),
        generation: *generation,
        rank: *rank,
    };
    Some((rank, node))
}

/// Formats the foreign ranks of a node, a text for each generation.
fn texts(node: &NodeId, foreign: &[RunningRank]) -> Vec<String> {
    let mut generations: BTreeMap<(&JobId, Generation), Vec<String>> = BTreeMap::new();
    for RunningRank { rank, pid, .. } in foreign {
        let names = generations.entry((&rank.job, rank.generation)).or_default();
        names.push(format!("rank {} as process {pid}", rank.rank));
    }
    let text = |((job, generation), names): ((&JobId, Generation), Vec<String>)| {
        format!(
            "node {node} runs {} of job {job}, generation {generation}, of which this journal has no record",
            names.join(", ")
        )
    };
    generations.into_iter().map(text).collect()
}
