//! Reports of void checkpoints to the agents of a job, which pass them on to its ranks.
//!
//! A checkpoint is void for all ranks when one of them lost its shard, when the manifest was not written, when it gave way to
//! later ones before all its shards had arrived, or when a rank had completed without it. Reports are sent
//! once and answered by nothing: agents that are away miss them, and the counts of the job stand in `status` all the same.
//!
//! A shard of an attempt that is never committed takes room in the store until its folder is removed ([`dead_attempts`]).

use std::collections::BTreeSet;

use rankguard_core::{DeadAttempts, DecisionState, Event, Job, JobPhase};
use rankguard_model::{Entity, EvidenceBody, Generation, JobId, Step};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind;

use crate::session_table::SessionTable;

/// Attempt that an event may make void.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    job: JobId,
    generation: Generation,
    step: Step,
    reason: String,
}

impl FailedAttempt {
    /// Returns the attempt of which `event` reports a failure; `None` if it reports none, or the attempt is void already.
    pub(crate) fn of(state: &DecisionState, event: &Event) -> Option<Self> {
        let (job, generation, step, reason) = match event {
            Event::ManifestRefused {
                job,
                generation,
                step,
                reason,
                ..
            } => (job, *generation, *step, reason),
            Event::EvidenceArrived { evidence } => match (&evidence.body, &evidence.entity) {
                (EvidenceBody::ShardFailed { step, reason }, Entity::Rank { job, generation, .. }) => {
                    (job, *generation, *step, reason)
                }
                _ => return None,
            },
            _ => return None,
        };
        let checkpoints = &state.jobs().get(job)?.checkpoints;
        let is_known = checkpoints.is_void(generation, step) || checkpoints.gave_way(generation, step).is_some();
        (!is_known).then(|| Self {
            job: job.clone(),
            generation,
            step,
            reason: reason.clone(),
        })
    }

    /// Reports the attempt to the nodes of the job if it is void now. Evidence that was refused makes none void.
    pub(crate) fn report(&self, state: &DecisionState, roster: &mut SessionTable) {
        let job = state.jobs().get(&self.job);
        let Some(job) = job.filter(|job| job.checkpoints.is_void(self.generation, self.step)) else {
            return;
        };
        send(job, self.generation, self.step, &self.reason, roster);
    }
}

/// Attempts of a generation that have shards and no commit before an event that may make them give way.
#[derive(Debug)]
pub(crate) struct OpenAttempts {
    job: JobId,
    generation: Generation,
    steps: Vec<Step>,
}

impl OpenAttempts {
    /// Returns the open attempts of a generation of which `event` reports a shard or a commit.
    pub(crate) fn of(state: &DecisionState, event: &Event) -> Option<Self> {
        let (job, generation) = match event {
            Event::ManifestCommitted { job, generation, .. } => (job, *generation),
            Event::EvidenceArrived { evidence } => match (&evidence.body, &evidence.entity) {
                (EvidenceBody::ShardDurable { .. }, Entity::Rank { job, generation, .. }) => (job, *generation),
                _ => return None,
            },
            _ => return None,
        };
        Some(Self {
            job: job.clone(),
            generation,
            steps: state.jobs().get(job)?.checkpoints.open_steps(generation),
        })
    }

    /// Reports those that gave way to the nodes of the job.
    pub(crate) fn report(self, state: &DecisionState, roster: &mut SessionTable) {
        let Some(job) = state.jobs().get(&self.job) else { return };
        for step in self.steps {
            let Some(reason) = job.checkpoints.gave_way(self.generation, step) else {
                continue;
            };
            send(job, self.generation, step, reason, roster);
        }
    }
}

/// Attempts of the present generation that count as void although no failure was reported, before an event that may show
/// that a completed rank left others out.
#[derive(Debug)]
pub(crate) struct CountedAttempts {
    job: JobId,
    generation: Generation,
    known: BTreeSet<(Generation, Step)>,
}

impl CountedAttempts {
    /// Returns the attempts that count as void before `event`, if it reports a sealed shard or the end of a rank.
    pub(crate) fn of(state: &DecisionState, event: &Event) -> Option<Self> {
        let Event::EvidenceArrived { evidence } = event else {
            return None;
        };
        let Entity::Rank { job, generation, .. } = &evidence.entity else {
            return None;
        };
        let may_show = match &evidence.body {
            EvidenceBody::ShardSealed { .. } => true,
            EvidenceBody::RankExited { exit, .. } => exit.is_success(),
            _ => false,
        };
        let entry = state.jobs().get(job).filter(|_| may_show)?;
        Some(Self {
            job: job.clone(),
            generation: *generation,
            known: entry.checkpoints.passed().clone(),
        })
    }

    /// Reports those that count as void since the event to the nodes of the job.
    pub(crate) fn report(self, state: &DecisionState, roster: &mut SessionTable) {
        let Some(job) = state.jobs().get(&self.job) else { return };
        for (generation, step) in job.checkpoints.passed().difference(&self.known) {
            let reason = job.left_out_reason(*step).filter(|_| *generation == self.generation);
            if let Some(reason) = reason {
                send(job, *generation, *step, &reason, roster);
            }
        }
    }
}

/// Reports a void attempt to the nodes of its job.
fn send(job: &Job, generation: Generation, step: Step, reason: &str, roster: &mut SessionTable) {
    for node in job.nodes() {
        let report = v1::CheckpointVoid {
            job: job.spec.id.to_string(),
            generation: generation.0,
            step: step.0,
            reason: reason.to_owned(),
        };
        roster.send(node, Kind::Void(report));
    }
}

/// Returns the store, the job and its attempts that are never committed, if `event` reports a shard of such an attempt, or
/// that the ranks of a stopped job have ended on a node.
pub(crate) fn dead_attempts(state: &DecisionState, event: &Event) -> Option<(String, JobId, DeadAttempts)> {
    let Event::EvidenceArrived { evidence } = event else {
        return None;
    };
    if let EvidenceBody::Stopped { job: name, left, .. } = &evidence.body {
        let job = state.jobs().get(name)?;
        let is_stopped = matches!(job.phase(), JobPhase::Stopped { .. }) && left.is_empty();
        let store = job.spec.checkpoint.as_ref().filter(|_| is_stopped)?.store.clone();
        return Some((store, name.clone(), job.dead_attempts()));
    }
    let Entity::Rank {
        job: name, generation, ..
    } = &evidence.entity
    else {
        return None;
    };
    let step = match &evidence.body {
        EvidenceBody::ShardFailed { step, .. } => *step,
        EvidenceBody::ShardDurable { seal } => seal.step,
        _ => return None,
    };
    let job = state.jobs().get(name)?;
    let store = job.spec.checkpoint.as_ref()?.store.clone();
    let dead = job.dead_attempts();
    dead.has(*generation, step).then(|| (store, name.clone(), dead))
}
