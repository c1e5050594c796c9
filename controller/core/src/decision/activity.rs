//! Progress of jobs that report no steps, judged by commits and signs of life.
//!
//! Once any generation of a job has reported step marks, the step deadlines apply, and a commit counts as a step.
//! Otherwise the job counts as running from its first commit or sign of life (growing output, CPU time). A job with
//! checkpoints counts as hung `stall_ms` after its newest output or commit, and after four times that while its ranks
//! use CPU time ([`crate::JobActivity`]). A job with neither step marks nor checkpoints is restarted for the exits of
//! its ranks alone, because it would lose all its work; a case is opened when all its ranks have been idle for
//! `stall_ms`, and closed by the next sign of life.

use std::time::Duration;

use rankguard_diagnosis::CallerFact;
use rankguard_model::{CaseId, CaseState, Entity, Evidence, EvidenceBody, Generation, JobId, Timestamp};

use super::DecisionContext;
use crate::job_activity::RestoreWait;
use crate::{JobPhase, RankActivity};

/// Signature of the agents' reports about rank activity. Field `state`: `output`, `busy` or `idle`.
const SIGNATURE: &str = "ranks.activity";
/// Signature of the agents' reports about restores that are tried again.
const RESTORE_RETRIED: &str = "checkpoint-restore-retry";

impl DecisionContext<'_> {
    /// Returns the work time after which a job without step marks counts as recovered, milliseconds.
    pub(super) fn life_ms(&self) -> u64 {
        self.state.policy.life_ms()
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
        let counts_early = self.state.recovers_with_life();
        let compares_ranks = self.state.compares_last_activity();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let has_ranks = match job.phase() {
            // Ranks may run on while their job waits for nodes.
            JobPhase::Starting | JobPhase::Running | JobPhase::Pending { .. } => true,
            // The first ranks may work while the last ones start; agents report only changes.
            JobPhase::Launching { .. } => counts_early,
            _ => false,
        };
        let acts = job.generation() == *generation && has_ranks;
        if !acts || !job.is_alive(*rank) {
            return;
        }
        let was_idle = job.activity.idle_since().is_some();
        let is_first_idle = !was_idle;
        job.activity.report(at, *rank, activity);
        let number = |field: &str| mark?.fields.get(field)?.parse::<u64>().ok();
        let last_active = number("inactive_ms").map(|ms| evidence.at.before(Duration::from_millis(ms)));
        let active_at = last_active.filter(|_| is_first_idle && !compares_ranks);
        let is_stopped = mark.is_some_and(|mark| mark.fields.get("stopped").is_some());
        job.activity.report_detail(*rank, is_stopped, active_at);
        if compares_ranks {
            job.activity.report_last_activity(*rank, last_active, was_idle);
        }
        self.take_life(name);
        self.watch_idle(name, was_idle);
    }

    /// Records a restore that an agent tries again, for the state of the job.
    pub(super) fn restore_retried(&mut self, evidence: &Evidence) {
        let mark = evidence.marks.iter().find(|mark| mark.signature == RESTORE_RETRIED);
        let (Some(mark), EvidenceBody::Line { text, .. }) = (mark, &evidence.body) else {
            return;
        };
        let Entity::Rank {
            job: name,
            generation,
            rank,
            node,
        } = &evidence.entity
        else {
            return;
        };
        let at = evidence.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if job.generation() == *generation {
            job.activity.restore_wait.get_or_insert_with(|| RestoreWait {
                rank: *rank,
                node: node.clone(),
                step: mark.fields.get("step").unwrap_or_default().to_owned(),
                since: at,
                problem: text.clone(),
            });
        }
    }

    /// `Starting => Running` of a job that has reported no step, after the first sign of life, and the end of its
    /// recovery.
    pub(super) fn take_life(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        if job.step().is_some() || !job.activity.has_life() {
            return;
        }
        let is_first = matches!(job.phase(), JobPhase::Starting);
        let is_later = matches!(job.phase(), JobPhase::Running) && self.state.awaits_life_of_all_ranks();
        if is_first {
            self.run_without_steps(name);
            self.wait_at_most(name, self.life_ms());
        }
        if (is_first || is_later) && self.state.recovers_with_life() && self.has_worked_without_steps(name) {
            self.recover_with_life(name, "the ranks of the job worked again; it reports no steps");
        }
    }

    /// Returns true if the restarted ranks of a job that reports no steps work again.
    pub(crate) fn has_worked_without_steps(&self, name: &JobId) -> bool {
        let waits_for_all = self.state.awaits_life_of_all_ranks();
        let Some(job) = self.state.jobs.get(name) else {
            return false;
        };
        let count = job.places().len();
        job.activity.has_life() && (!waits_for_all || job.activity.has_life_of_all(count))
    }

    /// `Starting => Running` of a job that has reported no step and shows no activity within `first_step_ms`, such as a
    /// program that waits for requests. Its ranks live, and only their exits can show a failure.
    pub(super) fn run_quietly(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        if matches!(job.phase(), JobPhase::Starting) && self.state.recovers_with_life() {
            self.run_without_steps(name);
            self.recover_with_life(
                name,
                "the ranks of the job lived; it reported no steps and showed no activity",
            );
        }
    }

    /// Closes the case of a restarted job, unless a rank has ended or another failure of the job is being examined.
    fn recover_with_life(&mut self, name: &JobId, how: &str) {
        let job = self.state.jobs.get(name);
        let is_recovering = job.is_some_and(|job| job.case().is_some() && job.ended_ranks().is_empty());
        if is_recovering && !self.state.cases.is_settling(name) {
            self.note_recovered(name, self.at, how);
            self.offer_node();
        }
    }

    /// Sets the deadline of a job after its ranks have become idle, or ends its case when they work again.
    fn watch_idle(&mut self, name: &JobId, was_idle: bool) {
        let stall_ms = self.state.policy.stall_ms;
        let watches_idle = self.state.watches_idle_jobs();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let is_idle = job.activity.idle_since().is_some();
        let is_watched = job.reports_no_steps() && job.spec.checkpoint.is_none() && watches_idle;
        if is_idle == was_idle || !is_watched || stall_ms == 0 {
            return;
        }
        if is_idle {
            return self.wait_at_most(name, stall_ms);
        }
        if let Some(case) = job.activity.case.take() {
            job.end_recovery_from(case);
            self.end_idle_case(case);
        }
        if self.state.jobs.get(name).is_some_and(|job| job.case().is_some()) {
            self.wait_at_most(name, self.life_ms());
        }
    }

    fn end_idle_case(&mut self, id: CaseId) {
        let case = self.state.cases.all().get(&id);
        if case.is_some_and(|case| case.state == CaseState::FaultPresent) {
            self.close_present(id, "its ranks worked again");
        } else {
            self.close(id, "its ranks worked again; nothing was restarted".to_owned());
        }
    }

    /// Returns true if the case of an idle job without checkpoints waits for a sign of life instead of a restart.
    pub(crate) fn awaits_life(&mut self, id: CaseId, name: &JobId) -> bool {
        let watches_idle = self.state.watches_idle_jobs();
        let has_exact_cases = self.state.has_exact_cases();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return false;
        };
        let is_idle = job.activity.idle_since().is_some();
        if !watches_idle || !is_idle || !job.reports_no_steps() || job.spec.checkpoint.is_some() {
            return false;
        }
        job.activity.case = Some(id);
        let text = "nothing is restarted, because the job has no checkpoints; output or processor time of a rank closes \
                    the case, `rankguard cancel` ends the job";
        if has_exact_cases {
            let clears = "a rank writes output or uses processor time";
            self.state.cases.set_present(
                id,
                "nothing was restarted, because the job has no checkpoints".to_owned(),
            );
            if let Some(case) = self.state.cases.get_mut(id) {
                clears.clone_into(&mut case.clears);
            }
        } else {
            job.recover_from(id);
            if let Some(case) = self.state.cases.get_mut(id) {
                case.state = CaseState::Recovering;
            }
        }
        self.note(Some(id), text.to_owned());
        true
    }

    /// Reports a job with ranks that have been idle for the stall limit.
    fn report_idle(&mut self, name: &JobId, since: Timestamp) {
        let stall_ms = self.state.policy.stall_ms;
        let Some(job) = self.state.jobs.get(name) else { return };
        let generation = job.generation();
        let due = since.after(std::time::Duration::from_millis(stall_ms));
        if due <= self.at {
            return self.witness_fact(&CallerFact::JobIdle {
                job: name.clone(),
                generation,
                since,
            });
        }
        let rest = u64::try_from(due.millis_since(self.at)).unwrap_or(stall_ms);
        // Rounded up: the timer must not fire before `due`.
        self.wait_at_most(name, rest.saturating_add(1));
    }

    /// Counts a commit of the current generation as a sign of life.
    pub(super) fn commit_shows_life(&mut self, name: &JobId, generation: Generation) {
        let at = self.at;
        let is_counted = self.state.refills_budgets();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !is_counted || job.generation() != generation || !job.has_started() {
            return;
        }
        job.activity.commit(at);
        let has_stepped = job.generation_step().is_some();
        if matches!(job.phase(), JobPhase::Starting) {
            self.run_without_steps(name);
        }
        self.watch_stall(name);
        if !has_stepped {
            self.note_recovered(name, at, "the job committed checkpoints again");
            self.offer_node();
        }
    }

    /// `Starting => Running` without a step.
    fn run_without_steps(&mut self, name: &JobId) {
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let mut working = job.places();
        working.retain(|rank, _| job.is_alive(*rank));
        job.run(at, working);
        self.offer_node();
    }

    /// Returns true if the job is judged by its signs of life rather than by steps.
    pub(super) fn is_judged_by_activity(&self, name: &JobId) -> bool {
        let job = self.state.jobs.get(name);
        let is_alive = job.is_some_and(|job| job.step().is_none() && job.activity.has_life());
        is_alive && self.state.refills_budgets()
    }

    /// Handles the phase deadline of a job that reports no steps.
    pub(super) fn judge_activity(&mut self, name: &JobId) {
        let stall_ms = self.state.policy.stall_ms;
        let Some(job) = self.state.jobs.get(name) else { return };
        let generation = job.generation();
        let is_saved = job.spec.checkpoint.is_some();
        let hung_from = job.activity.hung_from(stall_ms);
        let watches_idle = self.state.watches_idle_jobs();
        let idle_since = job.activity.idle_since().filter(|_| watches_idle);
        let newest = job.activity.newest_sign().filter(|_| watches_idle);
        let is_whole = job.ended_ranks().is_empty() || !self.state.follows_ended_ranks();
        if hung_from.is_none_or(|due| due > self.at) && job.case().is_some() && is_whole {
            self.note_recovered(name, self.at, "the ranks of the job worked again; it reports no steps");
            self.offer_node();
        }
        if !is_saved || stall_ms == 0 {
            if let Some(since) = idle_since.filter(|_| stall_ms > 0) {
                self.report_idle(name, since);
            }
            return;
        }
        match hung_from {
            None => self.watch_stall(name),
            Some(due) if due > self.at => {
                let rest = u64::try_from(due.millis_since(self.at)).unwrap_or(stall_ms);
                // Rounded up: the timer must not fire before `due`.
                self.wait_at_most(name, rest.saturating_add(1));
            }
            Some(_) => {
                let job = name.clone();
                self.witness_fact(&match newest {
                    Some(since) => CallerFact::JobIdle { job, generation, since },
                    // Older rules named the time of the decision.
                    None => CallerFact::JobStalled {
                        job,
                        generation,
                        since: self.at,
                        suspect: None,
                        equal_suspects: Vec::new(),
                        stood_at: None,
                    },
                });
            }
        }
    }
}
