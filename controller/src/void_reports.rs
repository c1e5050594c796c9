//! Reports of void checkpoints to the agents of a job, which pass them on to its ranks.
//!
//! A checkpoint is void for all ranks when one of them lost its shard, or when the manifest could not be written. Reports are sent
//! once and answered by nothing: agents that are away miss them, and the counts of the job stand in `status` all the same.

use rankguard_core::{Event, State};
use rankguard_model::{Body, Entity, Generation, JobId};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind;

use crate::roster::Roster;

/// The void checkpoints of a job before an event that may add one.
#[derive(Debug)]
pub(crate) struct VoidCount {
    job: JobId,
    generation: Generation,
    before: u64,
}

impl VoidCount {
    /// The count before `event`; `None` where the event makes no checkpoint void.
    pub(crate) fn before(state: &State, event: &Event) -> Option<Self> {
        let (job, generation) = match event {
            Event::ManifestRefused { job, generation, .. } => (job, *generation),
            Event::EvidenceArrived { evidence } => match (&evidence.body, &evidence.entity) {
                (Body::ShardFailed { .. }, Entity::Rank { job, generation, .. }) => (job, *generation),
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
    pub(crate) fn report(&self, state: &State, roster: &mut Roster) {
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
