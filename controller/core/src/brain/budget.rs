//! The restart budget of a job: progress between failures refills it.
//!
//! Progress is a committed checkpoint that is newer than all before it or, in a job that has committed nothing, a step that is
//! [far enough](crate::ProgressMark) beyond the last failure. A job of which neither is known is judged by the time that its
//! ranks worked: after twice the longest time without a step a failure counts as the first one, so that such a job is restarted
//! at that rate at most. A failure that comes back at the same step makes no progress and ends the job after its limit.

use rankguard_model::{Generation, JobId, Step};

use super::Turn;
use crate::Job;

impl Turn<'_> {
    /// A checkpoint was committed.
    pub(super) fn note_commit(&mut self, name: &JobId, generation: Generation, step: Step) {
        let is_refilled = self.state.refills_budgets();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !is_refilled {
            job.fruitless = 0;
            return;
        }
        if job.progress_mark.commit(step) {
            // What an ended generation had sealed was trained before the failure that is being answered.
            let is_adopted = generation < job.generation;
            job.refill_budget(is_adopted);
        }
    }

    /// A rank of a job reported a step.
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

    /// Whether a job of which neither steps nor checkpoints are known has worked long enough for its failure to count as the
    /// first one.
    pub(crate) fn has_worked_long(&self, job: &Job) -> bool {
        let limit = self.state.policy.stall_ms.saturating_mul(2);
        let is_known = job.step.is_some() || !job.checkpoints.committed.is_empty();
        let worked = job.activity.worked_ms(self.at);
        self.state.refills_budgets() && limit > 0 && !is_known && worked >= limit
    }
}

impl Job {
    /// Forgets restarts without progress and retries. Those of the failure that is being answered now are counted once where
    /// the progress was made before it.
    fn refill_budget(&mut self, is_before_failure: bool) {
        if !is_before_failure {
            self.fruitless = 0;
            self.retries.clear();
            return;
        }
        self.fruitless = self.fruitless.min(1);
        let mark = &self.progress_mark;
        self.retries.retain(|signature, _| mark.is_answered(signature));
        for count in self.retries.values_mut() {
            *count = (*count).min(1);
        }
    }
}
