//! Summaries of jobs, without the histories that [`rankguard_model::JobView`] has.

use std::collections::BTreeMap;

use rankguard_model::{CaseId, CheckpointView, Generation, JobId, JobState, JobView, NodeRange, Step, Timestamp};

use super::foreign_jobs;
use crate::{DecisionState, Job, Plan};

/// Summary of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSummary {
    pub name: JobId,
    pub state: JobState,
    /// Reason for a stop, or the missing condition for which the job waits.
    pub reason: Option<String>,
    pub generation: Generation,
    /// Step at which the job is, see [`JobView::current_step`].
    pub step: Option<Step>,
    /// Newest step that any generation reported.
    pub furthest_step: Option<Step>,
    /// Allowed number of nodes.
    pub nodes: NodeRange,
    pub ranks_per_node: u32,
    /// Ranks of the current generation; absent before the first one.
    pub world_size: Option<u32>,
    /// Newest committed checkpoint.
    pub newest_checkpoint: Option<CheckpointView>,
    /// Case from which the job is recovering.
    pub case: Option<CaseId>,
    pub submitted_at: Timestamp,
    /// Time at which the job finished or was stopped.
    pub ended_at: Option<Timestamp>,
}

impl DecisionState {
    /// Returns a summary of every job that [`Self::status`] lists, sorted by name.
    pub fn job_summaries(&self, at: Timestamp) -> Vec<JobSummary> {
        let unconfirmed = BTreeMap::new();
        let foreign = foreign_jobs(&self.fleet, &unconfirmed, at).into_iter();
        let foreign = foreign.chain(self.ended_foreign_jobs(&unconfirmed));
        let own = self.jobs.values().map(|job| self.summary(job, at));
        let mut summaries: Vec<JobSummary> = own.chain(foreign.map(foreign_summary)).collect();
        summaries.sort_by(|a, b| a.name.cmp(&b.name));
        summaries
    }

    fn summary(&self, job: &Job, at: Timestamp) -> JobSummary {
        JobSummary {
            name: job.spec.id.clone(),
            state: job.state(),
            reason: self.job_reason(job, at),
            generation: job.generation(),
            step: job.state().current_step(job.step_of_started_ranks(), job.step()),
            furthest_step: job.step(),
            nodes: job.spec.nodes,
            ranks_per_node: job.spec.ranks_per_node,
            world_size: job.plan().map(Plan::world_size),
            newest_checkpoint: job.checkpoints.committed.last().cloned(),
            case: job.case(),
            submitted_at: job.submitted_at,
            ended_at: job.ended_at(),
        }
    }
}

fn foreign_summary(view: JobView) -> JobSummary {
    JobSummary {
        world_size: u32::try_from(view.placements.len()).ok().filter(|ranks| *ranks > 0),
        name: view.spec.id,
        state: view.state,
        reason: view.reason,
        generation: view.generation,
        step: view.state.current_step(view.generation_step, view.step),
        furthest_step: view.step,
        nodes: view.spec.nodes,
        ranks_per_node: view.spec.ranks_per_node,
        newest_checkpoint: None,
        case: None,
        submitted_at: view.submitted_at,
        ended_at: view.ended_at,
    }
}
