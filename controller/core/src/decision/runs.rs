//! Runs: the checkpoint folder that a job has claimed, and the start checkpoint of its attempt.

use rankguard_checkpoint_format::CheckpointId;
use rankguard_model::{Generation, JobId, JobSpec, ResumePlace, StoreClaim, VoidCheckpoint};

use super::DecisionContext;
use crate::{DecisionState, Job};

impl DecisionContext<'_> {
    /// Applies the claim of a submitted job: its generations lie above all that have written to the folder, and the
    /// first one restores the start checkpoint.
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
        job.checkpoints.claimed(claim, self.state.keeps_inherited_checkpoints());
        if let Some(start) = claim.checkpoints.last().filter(|_| self.state.keeps_required_sizes()) {
            let checkpoint = CheckpointId {
                step: start.step,
                generation: start.generation,
            };
            job.checkpoints.note_same_size(checkpoint, &claim.same_size);
        }
        let run = &claim.run;
        match &claim.start {
            Some(start) => self.announce(format!("job {name} of run {run} resumes from {start}")),
            None => self.announce(format!("job {name} begins run {run} from nothing")),
        }
        for passed_over in &claim.passed_over {
            self.announce(format!("job {name} passes over {passed_over}"));
        }
        job.passed_over.clone_from(&claim.passed_over);
    }

    /// Handles the loss of a checkpoint as a start. If the attempt was to start from it and has committed none of its own,
    /// it goes on from the newest one that is left; the lost one is listed among those that it passed over.
    pub(super) fn lost_start(&mut self, name: &JobId, id: CheckpointId, reason: &str) {
        let replaces_starts = self.state.replaces_starts();
        let Some(job) = self.state.jobs.get_mut(name).filter(|_| replaces_starts) else {
            return;
        };
        let newest = job.checkpoints.newest().map(|newest| (newest.generation, newest.step));
        let Some(start) = job.resumed_from.as_mut() else { return };
        if (start.generation, start.step) != (id.generation, id.step) {
            return;
        }
        match newest {
            Some((_, step)) if step > id.step => return,
            Some((generation, step)) => (start.generation, start.step) = (generation, step),
            None => job.resumed_from = None,
        }
        job.passed_over.push(format!("step {}: {reason}", id.step));
    }
}

/// Describes the newest void checkpoint of the earlier attempt if it is newer than the start of this one, and the claim
/// does not describe its step already.
pub(super) fn passed_over_void(
    spec: &JobSpec,
    claim: &StoreClaim,
    newest_void: Option<VoidCheckpoint>,
) -> Option<String> {
    let has_step = spec.resume_from.as_ref().is_some_and(|source| source.step.is_some());
    let start = claim.start.as_ref().filter(|_| !has_step)?;
    let void = newest_void.filter(|void| void.step > start.step)?;
    let of_step = format!("step {} ", void.step);
    let is_described = claim.passed_over.iter().any(|text| text.starts_with(&of_step));
    (!is_described).then(|| format!("step {}: it failed in the earlier attempt: {}", void.step, void.reason))
}

impl DecisionState {
    /// Returns true if a submission may replace the job of its name: it resumes that job, and the job is over.
    pub fn may_replace(&self, spec: &JobSpec) -> bool {
        let resumes = spec.resume_from.as_ref().is_some_and(|source| match &source.place {
            ResumePlace::Job(job) => *job == spec.id,
            // The claim has verified that the path is the job's own folder.
            ResumePlace::Path(_) => true,
        });
        let is_idle = |job: &Job| job.is_over() && job.checkpoints.committing.is_none();
        resumes && self.jobs.get(&spec.id).is_none_or(is_idle)
    }

    /// Returns the newest known generation of a job name.
    pub fn generation_floor(&self, name: &JobId) -> Generation {
        let own = self.jobs.get(name).map(|job| job.generation());
        own.into_iter().chain([self.floors.of(name)]).max().unwrap_or_default()
    }

    /// Removes a job that is over, so that another attempt of its run may use its name. Fences of its nodes remain.
    pub(crate) fn replace_job(&mut self, name: &JobId) {
        let floor = self.generation_floor(name);
        self.floors.raise(name, floor);
        self.jobs.remove(name);
        self.context.remove(name);
        self.plans.retain(|_, plan| plan.job != *name);
        self.removed_names.retain(|removed| removed != name);
    }
}
