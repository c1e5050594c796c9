//! Runs: the folder that a job has claimed, and the checkpoint that its attempt starts from.

use rankguard_model::{Generation, JobId, JobSpec, ResumePlace, StoreClaim};

use super::Turn;
use crate::{Job, State};

impl Turn<'_> {
    /// Gives a submitted job the folder that it has claimed: its generations lie above all that have written there, and its first
    /// one restores the start.
    pub(super) fn take_claim(&mut self, job: &mut Job, claim: &StoreClaim) {
        let name = job.spec.id.clone();
        let below = Generation(claim.first.0.saturating_sub(1));
        if !self.state.floors.raise(&name, below) {
            self.announce(format!(
                "generation {below} in the checkpoint folder of job {name} is beyond any count of restarts; it is ignored"
            ));
        }
        job.run = Some(claim.run.clone());
        job.resumed_from.clone_from(&claim.start);
        job.checkpoints.claimed(claim);
        let run = &claim.run;
        match &claim.start {
            Some(start) => self.announce(format!("job {name} of run {run} resumes from {start}")),
            None => self.announce(format!("job {name} begins run {run} from nothing")),
        }
        for passed_over in &claim.passed_over {
            self.announce(format!("job {name} passes over {passed_over}"));
        }
    }
}

impl State {
    /// Whether a submission may take the place of the job of its name: it resumes, and that job is over.
    pub fn may_replace(&self, spec: &JobSpec) -> bool {
        let resumes = spec.resume_from.as_ref().is_some_and(|source| match &source.place {
            ResumePlace::Job(job) => *job == spec.id,
            // Its claim has shown whether that is the job's own folder.
            ResumePlace::Path(_) => true,
        });
        let is_idle = |job: &Job| job.is_over() && job.checkpoints.committing.is_none();
        resumes && self.jobs.get(&spec.id).is_none_or(is_idle)
    }

    /// The newest generation of a job's name that is known here.
    pub fn generation_floor(&self, name: &JobId) -> Generation {
        let own = self.jobs.get(name).map(|job| job.generation);
        own.into_iter().chain([self.floors.of(name)]).max().unwrap_or_default()
    }

    /// Forgets a job that is over, so that another attempt of its run may have its name. Fences of its nodes stand.
    pub(crate) fn replace_job(&mut self, name: &JobId) {
        let floor = self.generation_floor(name);
        self.floors.raise(name, floor);
        self.jobs.remove(name);
        self.context.remove(name);
        self.plans.retain(|_, plan| plan.job != *name);
        self.removed_names.retain(|removed| removed != name);
    }
}
