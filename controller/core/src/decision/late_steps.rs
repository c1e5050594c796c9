//! Steps of ranks for reports, also those of a generation that is over.
//!
//! A survivor of a failure runs on until it is ended, and its agent may report its steps after the next generation was
//! planned or launched. The next generation repeats them, so they count among the lost steps of the case.

use rankguard_model::{CaseId, Evidence, EvidenceBody, Generation, JobId, ProgressPoint, Step};

use super::DecisionContext;

impl DecisionContext<'_> {
    /// Records a step of the current generation or of an earlier one of this attempt.
    pub(super) fn record_step(&mut self, name: &JobId, generation: Generation, evidence: &Evidence) {
        let EvidenceBody::Progress { step, step_ms, .. } = &evidence.body else {
            return;
        };
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if generation > job.generation() || generation < job.checkpoints.first_generation() {
            return;
        }
        let is_newer = job.newest_step_of(generation) < Some(*step);
        job.record_step(&ProgressPoint {
            at: evidence.at,
            generation,
            step: *step,
            loss: None,
            step_ms: *step_ms,
        });
        if generation < job.generation() && is_newer && self.state.counts_late_steps() {
            self.count_late_step(name, generation, *step);
        }
    }

    /// Adds a step to the lost steps of the case that ended its generation, if those are counted already.
    fn count_late_step(&mut self, name: &JobId, generation: Generation, step: Step) {
        let job = self.state.jobs.get(name);
        let restored = job.and_then(|job| job.launch_record.restored_after(generation));
        let lost = step.0.saturating_sub(restored.map_or(0, |step| step.0));
        let Some(id) = self.case_of_generation(name, generation) else {
            return;
        };
        if let Some(case) = self.state.cases.get_mut(id)
            && case.steps_lost.is_some()
        {
            case.steps_lost = case.steps_lost.max(Some(lost));
        }
    }

    /// Returns the newest case that ended a generation of a job.
    fn case_of_generation(&self, name: &JobId, generation: Generation) -> Option<CaseId> {
        let cases = self.state.cases.all().iter().rev();
        let mut ended = cases.filter(|(_, case)| case.steps_lost.is_some());
        let found = ended.find(|(_, case)| case.job.as_ref() == Some(name) && case.generation == Some(generation));
        found.map(|(id, _)| *id)
    }
}
