//! Restart budget of a job, which progress between failures refills.
//!
//! Progress is a committed checkpoint newer than all before it or, in a job without commits, a step [far
//! enough](crate::ProgressMark) beyond the last failure. A job without steps and commits is judged by its work time:
//! after twice `stall_ms` a failure counts as the first one, which limits the rate of such restarts. A failure that
//! repeats at the same step makes no progress and ends the job at its limit.

use rankguard_model::{Generation, JobId, Step};

use super::DecisionContext;
use crate::Job;

impl DecisionContext<'_> {
    /// Counts a commit as progress if it is newer than all before it.
    pub(super) fn note_commit(&mut self, name: &JobId, generation: Generation, step: Step) {
        let is_refilled = self.state.refills_budgets();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !is_refilled {
            job.reset_fruitless();
            return;
        }
        if job.progress_mark.commit(step) {
            // Shards that an ended generation sealed were trained before the failure that is being answered.
            let is_adopted = generation < job.generation();
            job.refill_budget(is_adopted);
        }
    }

    /// Counts a step as progress in a job without commits.
    pub(super) fn note_step(&mut self, name: &JobId, step: Step) {
        if !self.state.refills_budgets() {
            return;
        }
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if job.checkpoints.committed.is_empty() && job.progress_mark.reach(step) {
            job.refill_budget(false);
        }
    }

    /// Returns true if a job without known steps and checkpoints has worked long enough for its failure to count as the
    /// first one.
    pub(crate) fn has_worked_long(&self, job: &Job) -> bool {
        let limit = self.state.policy.stall_ms.saturating_mul(2);
        let is_known = job.step().is_some() || !job.checkpoints.committed.is_empty();
        let worked = job.activity.worked_ms(self.at);
        self.state.refills_budgets() && limit > 0 && !is_known && worked >= limit
    }
}
