//! Progress of jobs that report no steps, judged by commits and signs of life.
//!
//! Once any generation of a job has reported step marks, the step deadlines apply, and a commit counts as a step.
//! Otherwise the job counts as running from its first commit or sign of life (growing output, CPU time). A job with
//! checkpoints counts as hung `stall_ms` after its newest output or commit, and after four times that while its ranks
//! use CPU time ([`crate::JobActivity`]). A job with neither step marks nor checkpoints is judged by the exits of its
//! ranks alone.

use rankguard_diagnosis::CallerFact;
use rankguard_model::{Entity, Evidence, Generation, JobId};

use super::DecisionContext;
use crate::{JobPhase, RankActivity};

/// Signature of the agents' reports about rank activity. Field `state`: `output`, `busy` or `idle`.
const SIGNATURE: &str = "ranks.activity";
/// Upper bound of the work time after which the failure of a recovered job counts as overcome, milliseconds.
const LIFE_MS: u64 = 60_000;

impl DecisionContext<'_> {
    /// Returns the work time after which a job without step marks counts as recovered, milliseconds.
    pub(super) fn life_ms(&self) -> u64 {
        self.state.policy.first_step_ms.min(LIFE_MS)
    }

    /// Handles a rank activity report.
    pub(super) fn rank_active(&mut self, evidence: &Evidence) {
        let mark = evidence.marks.iter().find(|mark| mark.signature == SIGNATURE);
        let state = mark.and_then(|mark| mark.fields.get("state"));
        let Some(activity) = state.and_then(RankActivity::named) else {
            return;
        };
        let Entity::Rank {
            job: name,
            generation,
            rank,
            ..
        } = &evidence.entity
        else {
            return;
        };
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        // Ranks may run on while their job waits for nodes.
        let has_ranks = matches!(
            job.phase,
            JobPhase::Starting | JobPhase::Running | JobPhase::Pending { .. }
        );
        let acts = job.generation == *generation && has_ranks;
        if !acts || !job.running.contains(rank) {
            return;
        }
        let is_first = job.activity.report(at, *rank, activity);
        if is_first && matches!(job.phase, JobPhase::Starting) && job.step.is_none() {
            self.run_without_steps(name);
            self.wait_at_most(name, self.life_ms());
        }
    }

    /// Counts a commit of the current generation as a sign of life.
    pub(super) fn commit_shows_life(&mut self, name: &JobId, generation: Generation) {
        let at = self.at;
        let is_counted = self.state.refills_budgets();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !is_counted || job.generation != generation || !matches!(job.phase, JobPhase::Starting | JobPhase::Running) {
            return;
        }
        job.activity.commit(at);
        let has_stepped = job.generation_step.is_some();
        if matches!(job.phase, JobPhase::Starting) {
            self.run_without_steps(name);
        }
        self.watch_stall(name);
        if !has_stepped {
            self.note_recovered(name, at, "the job commits checkpoints again");
            self.offer_node();
        }
    }

    /// `Starting => Running` without a step.
    fn run_without_steps(&mut self, name: &JobId) {
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        job.phase = JobPhase::Running;
        job.checkpoints.suspicions.readable();
        for place in job.places() {
            if job.running.contains(&place.0) {
                job.open_span(at, &place.1, place.0, "running");
            }
        }
        self.offer_node();
    }

    /// Returns true if the job is judged by its signs of life rather than by steps.
    pub(super) fn is_judged_by_activity(&self, name: &JobId) -> bool {
        let job = self.state.jobs.get(name);
        let is_alive = job.is_some_and(|job| job.step.is_none() && job.activity.has_life());
        is_alive && self.state.refills_budgets()
    }

    /// Handles the phase deadline of a job that reports no steps.
    pub(super) fn judge_activity(&mut self, name: &JobId) {
        let stall_ms = self.state.policy.stall_ms;
        let Some(job) = self.state.jobs.get(name) else { return };
        let generation = job.generation;
        let is_saved = job.spec.checkpoint.is_some();
        let hung_from = job.activity.hung_from(stall_ms);
        if hung_from.is_none_or(|due| due > self.at) && job.case.is_some() {
            self.note_recovered(name, self.at, "the ranks of the job work again; it reports no steps");
            self.offer_node();
        }
        if !is_saved || stall_ms == 0 {
            return;
        }
        match hung_from {
            None => self.watch_stall(name),
            Some(due) if due > self.at => {
                let rest = u64::try_from(due.millis_since(self.at)).unwrap_or(stall_ms);
                // Rounded up: the timer must not fire before `due`.
                self.wait_at_most(name, rest.saturating_add(1));
            }
            Some(_) => self.witness_fact(&CallerFact::JobStalled {
                job: name.clone(),
                generation,
                since: self.at,
                suspect: None,
            }),
        }
    }
}
