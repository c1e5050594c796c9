//! Newest step of every rank; a complaint before a later step is harmless.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceSource, Generation, JobId, NodeId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Signal;

/// Minimum time from a complaint to a completed step that shows that the complaint was harmless. Progress is reported
/// with a delay, so a shorter time proves nothing.
pub(crate) const RECOVERED_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of jobs; beyond it the one without a step for longest is removed.
const JOBS_MAX: usize = 1_000;
/// Maximum number of ranks of one job; steps of further ranks are not recorded.
const RANKS_MAX: usize = 1 << 17;

/// Time of the newest step of each rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct StepTimes(BTreeMap<JobId, BTreeMap<Rank, NewestStep>>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct NewestStep {
    generation: Generation,
    at: Timestamp,
    /// Time at which the newest step began; none in states that were written by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<Timestamp>,
    /// First step of the rank in this generation; none in states that were written by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<FirstStep>,
}

/// First step that a rank completed in a generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct FirstStep {
    node: NodeId,
    at: Timestamp,
}

impl StepTimes {
    /// Records a step; ignores other evidence.
    pub(crate) fn take(&mut self, evidence: &Evidence) {
        let (
            EvidenceBody::Progress { step_ms, .. },
            Entity::Rank {
                job,
                generation,
                rank,
                node,
            },
        ) = (&evidence.body, &evidence.entity)
        else {
            return;
        };
        let began = Duration::try_from_secs_f64(step_ms / 1_000.0).ok();
        let began = began.map(|lasted| evidence.at.before(lasted));
        let known = self.0.get_mut(job).and_then(|ranks| ranks.get_mut(rank));
        if let Some(known) = known.filter(|known| known.generation == *generation) {
            known.at = evidence.at;
            known.began = began;
            return;
        }
        let first = FirstStep {
            node: node.clone(),
            at: evidence.at,
        };
        let newest = NewestStep {
            generation: *generation,
            at: evidence.at,
            began,
            first: Some(first),
        };
        match self.0.get_mut(job) {
            Some(ranks) if ranks.len() < RANKS_MAX || ranks.contains_key(rank) => drop(ranks.insert(*rank, newest)),
            Some(_) => {}
            None => {
                if self.0.len() >= JOBS_MAX {
                    self.forget_oldest();
                }
                drop(self.0.insert(job.clone(), BTreeMap::from([(*rank, newest)])));
            }
        }
    }

    fn forget_oldest(&mut self) {
        let newest = |ranks: &BTreeMap<Rank, NewestStep>| ranks.values().map(|progress| progress.at).max();
        let oldest = self
            .0
            .iter()
            .min_by_key(|(_, ranks)| newest(ranks))
            .map(|(job, _)| job.clone());
        if let Some(job) = oldest {
            self.0.remove(&job);
        }
    }

    /// Returns true if the sign is a complaint of a rank that completed steps afterwards.
    pub(crate) fn overcame(&self, sign: &Signal) -> bool {
        let Entity::Rank {
            job, generation, rank, ..
        } = &sign.entity
        else {
            return false;
        };
        if sign.source != EvidenceSource::JobLog {
            return false;
        }
        let progress = self.0.get(job).and_then(|ranks| ranks.get(rank));
        progress.is_some_and(|newest| newest.generation == *generation && newest.at.since(sign.at) >= RECOVERED_AFTER)
    }

    /// Returns true if all ranks that a job has on a node first completed steps there after a fault of the node, in a
    /// generation that began after it. Their machine worked in spite of the fault, or it was repaired.
    pub(crate) fn worked_after(
        &self,
        job: &JobId,
        placements: &BTreeMap<Rank, NodeId>,
        node: &NodeId,
        fault_at: Timestamp,
    ) -> bool {
        let Some(steps) = self.0.get(job) else { return false };
        let mut there = placements.iter().filter(|(_, at)| *at == node).peekable();
        let worked = |rank: &Rank| {
            let first = steps.get(rank).and_then(|newest| newest.first.as_ref());
            first.is_some_and(|first| first.node == *node && first.at.since(fault_at) >= RECOVERED_AFTER)
        };
        there.peek().is_some() && there.all(|(rank, _)| worked(rank))
    }

    /// Returns the time of the last step that a rank of a generation completed on a node.
    pub(crate) fn newest_on(
        &self,
        job: &JobId,
        generation: Generation,
        placements: &BTreeMap<Rank, NodeId>,
        node: &NodeId,
    ) -> Option<Timestamp> {
        let steps = self.steps_on(job, generation, placements, node);
        steps.map(|newest| newest.at).max()
    }

    /// Returns the time at which the newest step began that a rank of a generation completed on a node.
    pub(crate) fn newest_began_on(
        &self,
        job: &JobId,
        generation: Generation,
        placements: &BTreeMap<Rank, NodeId>,
        node: &NodeId,
    ) -> Option<Timestamp> {
        let steps = self.steps_on(job, generation, placements, node);
        steps.filter_map(|newest| newest.began).max()
    }

    fn steps_on<'a>(
        &'a self,
        job: &JobId,
        generation: Generation,
        placements: &'a BTreeMap<Rank, NodeId>,
        node: &'a NodeId,
    ) -> impl Iterator<Item = &'a NewestStep> {
        let ranks = self.0.get(job);
        let there = placements.iter().filter(move |(_, at)| *at == node);
        let steps = there.filter_map(move |(rank, _)| ranks?.get(rank));
        steps.filter(move |newest| newest.generation == generation)
    }
}
