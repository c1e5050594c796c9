//! Records that are complete only after the last event.

use rankguard_checkpoint_schedule::rates::FailureExtent;
use rankguard_core::{Job as CoreJob, JobPhase, Plan, scope_of};
use rankguard_model::{Case, CaseId, CaseState, JobId, JobSpec, Severity, Timestamp, is_cancellation};

use super::records::{FailureRecord, JobAttempt, JobRecord, JournalRecord, JournalSummary, NodeRecord};
use super::{JournalAnalyser, interval};

/// Beginning of the outcome of a case for which a job was stopped.
const STOPPED: &str = "the job was stopped";

impl JournalAnalyser {
    pub(super) fn finish(mut self, take: &mut impl FnMut(JournalRecord)) -> JournalSummary {
        let Some(last) = self.end.last else {
            // A journal without dated events gives no further records.
            return self.end;
        };
        for (name, life) in &self.lives {
            take(JournalRecord::Interval(interval(
                name,
                life,
                last.max(life.since),
                true,
            )));
        }
        for (name, job) in self.state.jobs() {
            take(JournalRecord::Job(self.job(name, job)));
            self.attempts(name, job, take);
        }
        for (name, node) in self.state.fleet().iter() {
            take(JournalRecord::Node(NodeRecord {
                node: name.clone(),
                joined: self.lives.get(name).map_or(node.joined_at, |life| life.first),
                failure_domain: node.info.failure_domain.clone(),
                slots: node.info.slots,
            }));
        }
        for case in self.state.cases().values() {
            match (case.state, case.verdict.severity) {
                (CaseState::Open, _) => self.end.open += 1,
                (_, Severity::Failure) => take(JournalRecord::Failure(self.failure(case))),
                _ => self.end.harmless += 1,
            }
        }
        self.end.nodes = self.state.fleet().len() as u64;
        self.end
    }

    /// Records the job that a submission replaces: another attempt of its run takes its name, and the state keeps no
    /// trace of the earlier one.
    pub(super) fn end_replaced(&mut self, spec: &JobSpec, take: &mut impl FnMut(JournalRecord)) {
        let name = &spec.id;
        let Some(job) = self.state.jobs().get(name).filter(|_| self.state.may_replace(spec)) else {
            return;
        };
        take(JournalRecord::Job(self.job(name, job)));
        self.attempts(name, job, take);
        self.started.remove(name);
    }

    fn job(&self, name: &JobId, job: &CoreJob) -> JobRecord {
        let (state, reason) = match job.phase() {
            JobPhase::Finished => ("completed", None),
            JobPhase::Stopped { reason } if is_cancellation(reason) => ("cancelled", Some(reason.clone())),
            JobPhase::Stopped { reason } => ("failed", Some(reason.clone())),
            JobPhase::Pending { .. } => ("pending", None),
            _ => ("running", None),
        };
        JobRecord {
            job: name.clone(),
            submitted: job.submitted_at,
            started: self.started.get(name).copied(),
            ended: job.ended_at(),
            state,
            reason,
            nodes: job.plan().map(|plan| plan.nodes.len() as u64),
            ranks: job.plan().map(|plan| u64::from(plan.world_size())),
            step: job.step(),
        }
    }

    fn attempts(&self, name: &JobId, job: &CoreJob, take: &mut impl FnMut(JournalRecord)) {
        let plans: Vec<&Plan> = self.state.plans().values().filter(|plan| plan.job == *name).collect();
        for (at, plan) in plans.iter().enumerate() {
            let (end, state, ended_by) = match plans.get(at + 1) {
                Some(next) => match next.case {
                    Some(case) => (
                        Some(self.failed_at(case, plan, next.made_at)),
                        self.failed_as(case),
                        Some(case),
                    ),
                    None => (Some(next.made_at), "other", None),
                },
                None => match job.phase() {
                    JobPhase::Finished => (job.ended_at(), "completed", None),
                    JobPhase::Stopped { reason } if is_cancellation(reason) => (job.ended_at(), "cancelled", None),
                    JobPhase::Stopped { .. } => match self.last_case(name, plan) {
                        Some(case) => (
                            job.ended_at().map(|ended| self.failed_at(case, plan, ended)),
                            self.failed_as(case),
                            Some(case),
                        ),
                        None => (job.ended_at(), "failed", None),
                    },
                    _ => (None, "running", None),
                },
            };
            take(JournalRecord::Attempt(JobAttempt {
                job: name.clone(),
                generation: plan.generation,
                start: plan.made_at,
                end,
                state,
                kind: plan.kind.describe(),
                nodes: plan.nodes.clone(),
                ranks: plan.world_size(),
                step: self.steps.get(&(name.clone(), plan.generation)).copied(),
                ended_by,
            }));
        }
    }

    /// Returns the last failure of a generation without a successor: the one for which its job was stopped, if it is
    /// known.
    fn last_case(&self, name: &JobId, plan: &Plan) -> Option<CaseId> {
        let of = |case: &&Case| {
            case.job.as_ref() == Some(name)
                && case.generation == Some(plan.generation)
                && case.verdict.severity == Severity::Failure
        };
        let is_end = |case: &&Case| {
            of(case)
                && case
                    .outcome
                    .as_deref()
                    .is_some_and(|outcome| outcome.starts_with(STOPPED))
        };
        let cases = || self.state.cases().values();
        cases().rfind(is_end).or_else(|| cases().rfind(of)).map(|case| case.id)
    }

    /// Returns the end of an attempt: its failure, which precedes its successor's plan.
    fn failed_at(&self, case: CaseId, plan: &Plan, replaced: Timestamp) -> Timestamp {
        let first = self.state.cases().get(&case).map_or(replaced, |case| case.first_at);
        first.clamp(plan.made_at, replaced.max(plan.made_at))
    }

    fn failed_as(&self, case: CaseId) -> &'static str {
        match self.state.cases().get(&case) {
            Some(case) if scope_of(&case.verdict) == FailureExtent::Node => "node_fail",
            Some(case) if case.verdict.class.as_str().contains("oom") => "out_of_memory",
            _ => "failed",
        }
    }

    fn failure(&self, case: &Case) -> FailureRecord {
        let verdict = &case.verdict;
        // The absence that belongs to the failure began before the case was answered, and did not end before the
        // failure.
        let answered = case.closed_at.unwrap_or(case.opened_at).max(case.opened_at);
        let away = verdict.blamed.node().and_then(|node| self.away.get(node));
        let away = away
            .into_iter()
            .flatten()
            .find(|(from, to)| *from <= answered && to.is_none_or(|to| to >= case.first_at));
        FailureRecord {
            case: case.id,
            at: case.first_at,
            back: away.and_then(|(_, to)| *to),
            recovered: case.closed_at.filter(|_| case.state == CaseState::Recovered),
            detected: case.opened_at,
            job: case.job.clone(),
            generation: case.generation,
            blamed: verdict.blamed.clone(),
            class: verdict.class.clone(),
            layer: verdict.layer.clone(),
            severity: verdict.severity,
            confidence: verdict.confidence,
            scope: scope_of(verdict),
            steps_lost: case.steps_lost,
            is_synthetic: case.is_synthetic(),
        }
    }
}
