//! Reports of void checkpoints to the agents of a job, which pass them on to its ranks.
//!
//! A checkpoint is void for all ranks when one of them lost its shard, or when the manifest could not be written. Reports are sent
//! once and answered by nothing: agents that are away miss them, and the counts of the job stand in `status` all the same.
//!
//! A shard of an attempt that is never committed takes room in the store until its folder is removed ([`dead_attempts`]).

use rankguard_core::{DeadAttempts, DecisionState, Event};
use rankguard_model::{Entity, EvidenceBody, Generation, JobId};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind;

use crate::session_table::SessionTable;

/// The void checkpoints of a job before an event that may add one.
#[derive(Debug)]
pub(crate) struct VoidCount {
    job: JobId,
    generation: Generation,
    before: u64,
}

impl VoidCount {
    /// The count before `event`; `None` where the event makes no checkpoint void.
    pub(crate) fn before(state: &DecisionState, event: &Event) -> Option<Self> {
        let (job, generation) = match event {
            Event::ManifestRefused { job, generation, .. } => (job, *generation),
            Event::EvidenceArrived { evidence } => match (&evidence.body, &evidence.entity) {
                (EvidenceBody::ShardFailed { .. }, Entity::Rank { job, generation, .. }) => (job, *generation),
                _ => return None,
            },
            _ => return None,
        };
        let before = state.jobs().get(job)?.checkpoints.counts.void;
        Some(Self {
            job: job.clone(),
            generation,
            before,
        })
    }

    /// Sends the checkpoint that became void since to the nodes of the job. Evidence that was refused adds none.
    pub(crate) fn report(&self, state: &DecisionState, roster: &mut SessionTable) {
        let Some(job) = state.jobs().get(&self.job) else { return };
        let counts = &job.checkpoints.counts;
        let newest = counts.newest_void.as_ref().filter(|_| counts.void > self.before);
        let Some(void) = newest else { return };
        for node in job.nodes() {
            let report = v1::CheckpointVoid {
                job: self.job.to_string(),
                generation: self.generation.0,
                step: void.step.0,
                reason: void.reason.clone(),
            };
            roster.send(node, Kind::Void(report));
        }
    }
}

/// Returns the store, the job and its attempts that are never committed, if `event` reports a shard of such an attempt.
pub(crate) fn dead_attempts(state: &DecisionState, event: &Event) -> Option<(String, JobId, DeadAttempts)> {
    let Event::EvidenceArrived { evidence } = event else {
        return None;
    };
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
    let dead = job.checkpoints.dead_attempts();
    dead.has(*generation, step).then(|| (store, name.clone(), dead))
}
