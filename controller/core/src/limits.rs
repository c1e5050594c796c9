//! Limits of the histories in the state (RG-9): each history has a limit and a removal rule.
//!
//! | history | limit | removed |
//! |---|---|---|
//! | jobs that are over | [`JOBS_OVER_MAX`], [`JOBS_OVER_AGE`] | the one that ended first; its name remains reserved |
//! | names of removed jobs | [`JOB_NAMES_MAX`] | the oldest |
//! | progress and spans of a job that is over | [`POINTS_OVER_MAX`] | every second point, the oldest spans |
//! | plans of a job | [`PLANS_PER_JOB_MAX`] | the oldest, except that of the generation that trained last |
//! | closed cases | [`CASES_CLOSED_MAX`], [`CASES_BYTES_MAX`] | the oldest |
//! | cases with a fault that is present | [`PRESENT_FAULTS_MAX`] | the oldest is closed |
//! | text of a case | [`CASE_TEXT_BYTES`] | the ends of texts |
//! | sequence numbers of nodes | [`SEQUENCES_MAX`] | those of nodes that are not in the fleet |
//! | committed checkpoints of a job | [`COMMITTED_MAX`] | the oldest that retention does not keep |
//!
//! Offline readers lift the limits with [`DecisionState::without_limits`].

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::{Case, CaseFinding, CaseId, CaseState, JobId, PlanId};
use serde::{Deserialize, Serialize};

use crate::decision::DecisionContext;
use crate::{DecisionState, Event, Job};

/// Jobs that are over.
pub(crate) const JOBS_OVER_MAX: usize = 1_000;
/// Longest time for which a job that is over is retained.
pub(crate) const JOBS_OVER_AGE: Duration = Duration::from_secs(30 * 86_400);
/// Drafts of failures, including those concluded a short while ago.
pub(crate) const DRAFTS_MAX: usize = 1_024;
/// Names of removed jobs, which cannot be used again.
pub(crate) const JOB_NAMES_MAX: usize = 100_000;
/// Progress points, and spans, of a job that is over.
pub(crate) const POINTS_OVER_MAX: usize = 256;
pub(crate) const PLANS_PER_JOB_MAX: usize = 64;
/// Closed and recovered cases.
pub(crate) const CASES_CLOSED_MAX: usize = 2_000;
/// Open cases with a fault that is present after the verdict.
pub(crate) const PRESENT_FAULTS_MAX: usize = 1_000;
/// Text of all closed and recovered cases, bytes.
pub(crate) const CASES_BYTES_MAX: usize = 32 << 20;
/// Text of the findings of one case, bytes.
pub(crate) const CASE_TEXT_BYTES: usize = 256 << 10;
/// Text of each further finding once the limit of the case is used up, bytes.
const FINDING_TEXT_BYTES: usize = 200;
/// Nodes with a recorded newest sequence number.
pub(crate) const SEQUENCES_MAX: usize = 100_000;
pub(crate) const COMMITTED_MAX: usize = 512;
/// Newest checkpoints with recorded stalls of each rank.
pub(crate) const STALLS_SHOWN: usize = 16;
/// Failure signatures of one job with counted retries.
pub(crate) const RETRIES_MAX: usize = 64;
pub(crate) const ACTIONS_MAX: usize = 512;

/// Counts of entries that the limits removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedCounts {
    pub cases: u64,
    /// Jobs that were over.
    pub jobs: u64,
}

impl DecisionContext<'_> {
    /// Applies the limits of histories that this event may have extended. `cases` is the number of cases before it.
    pub(crate) fn limit(&mut self, event: &Event, cases: usize) {
        if self.state.unlimited {
            return;
        }
        if self.state.cases.all().len() > cases {
            self.state.limit_cases();
        }
        match event {
            Event::JobSubmitted { .. } => self.limit_jobs(),
            Event::EvidenceArrived { .. } => self.state.limit_sequences(),
            _ => {}
        }
    }

    fn limit_jobs(&mut self) {
        let mut over: Vec<_> = self
            .state
            .jobs
            .iter()
            .filter(|(_, job)| job.is_over())
            .map(|(name, job)| (job.ended_at(), name.clone()))
            .collect();
        over.sort();
        for (_, name) in &over {
            if let Some(job) = self.state.jobs.get_mut(name) {
                job.thin();
            }
        }
        let many = over.len().saturating_sub(JOBS_OVER_MAX);
        let old = over.partition_point(|(ended, _)| ended.is_some_and(|ended| self.at.since(ended) > JOBS_OVER_AGE));
        for (_, name) in over.drain(..many.max(old)) {
            self.state.remove_job(&name);
        }
    }
}

impl DecisionState {
    /// Returns the first history beyond its limit: name, length and limit.
    pub(crate) fn beyond_limits(&self) -> Option<(&'static str, usize, usize)> {
        let over = self.jobs.values().filter(|job| job.is_over()).count();
        let plans = |name: &JobId| self.plans.values().filter(|plan| plan.job == *name).count();
        let of_jobs = |length: fn(&Job) -> usize| self.jobs.values().map(length).max().unwrap_or(0);
        let closed = self
            .cases
            .all()
            .values()
            .filter(|case| !matches!(case.state, CaseState::Open | CaseState::FaultPresent))
            .filter(|case| case.awaits_operator.is_none())
            .count();
        let present = self.cases.with_present_fault().count();
        let histories = [
            // Jobs that ended since the last submission are removed at the next one.
            ("jobs that are over", over, 2 * JOBS_OVER_MAX),
            ("names of removed jobs", self.removed_names.len(), JOB_NAMES_MAX),
            (
                "plans of a job",
                self.jobs.keys().map(plans).max().unwrap_or(0),
                PLANS_PER_JOB_MAX + 1,
            ),
            // A running job refers to the case from which it recovers.
            ("cases with a present fault", present, PRESENT_FAULTS_MAX),
            ("closed cases", closed, CASES_CLOSED_MAX + self.jobs.len() + DRAFTS_MAX),
            ("sequence numbers", self.seen.len(), SEQUENCES_MAX + self.fleet.len()),
            ("spans of nodes", self.node_spans.len(), 4_096),
            (
                "checkpoints",
                of_jobs(|job| job.checkpoints.committed.len()),
                COMMITTED_MAX + 64,
            ),
            ("progress points", of_jobs(|job| job.progress().len()), 4_096),
            ("spans of ranks", of_jobs(|job| job.spans().len()), 4_096),
            ("retried failures", of_jobs(|job| job.retried_failures()), RETRIES_MAX),
            (
                "running ranks",
                of_jobs(|job| job.running().len()),
                of_jobs(Job::world_size),
            ),
        ];
        histories.into_iter().find(|(_, length, most)| length > most)
    }

    fn remove_job(&mut self, name: &JobId) {
        self.jobs.remove(name);
        self.context.remove(name);
        self.plans.retain(|_, plan| plan.job != *name);
        self.removed.jobs += 1;
        self.removed_names.push_back(name.clone());
        if self.removed_names.len() > JOB_NAMES_MAX {
            self.removed_names.pop_front();
        }
    }

    /// Retains the newest plans of a job and the plan of the generation that trained last.
    pub(crate) fn limit_plans(&mut self, name: &JobId) {
        if self.unlimited {
            return;
        }
        let trained = self.jobs.get(name).map(|job| job.checkpoints.trained());
        let own = self.plans.values().filter(|plan| plan.job == *name);
        let all: Vec<(PlanId, bool)> = own.map(|plan| (plan.id, Some(plan.generation) == trained)).collect();
        let many = all.len().saturating_sub(PLANS_PER_JOB_MAX);
        for (id, _) in all.into_iter().filter(|(_, is_trained)| !is_trained).take(many) {
            self.plans.remove(&id);
        }
    }

    fn limit_cases(&mut self) {
        let used: BTreeSet<CaseId> = self
            .jobs
            .values()
            .filter_map(|job| job.case().or(job.hang.case))
            .collect();
        let is_done = |case: &Case| !case.is_open() && !used.contains(&case.id);
        let mut count = 0;
        let mut bytes = 0;
        let mut gone = Vec::new();
        for case in self.cases.all().values().rev().filter(|case| is_done(case)) {
            count += 1;
            bytes += text_bytes(case);
            if count > CASES_CLOSED_MAX || bytes > CASES_BYTES_MAX {
                gone.push(case.id);
            }
        }
        self.removed.cases += gone.len() as u64;
        self.cases.remove(&gone);
    }

    fn limit_sequences(&mut self) {
        if self.seen.len() <= SEQUENCES_MAX {
            return;
        }
        let gone = self.seen.keys().find(|node| self.fleet.get(node).is_none()).cloned();
        if let Some(node) = gone {
            self.seen.remove(&node);
        }
    }
}

/// Returns the bytes of a case's texts.
pub(crate) fn text_bytes(case: &Case) -> usize {
    let findings = case
        .findings
        .iter()
        .map(|finding| finding.text.len() + finding.why.len() + 200);
    let reasons = case
        .reasoning
        .iter()
        .chain(&case.actions)
        .map(|reason| reason.text.len() + 32);
    findings.sum::<usize>() + reasons.sum::<usize>() + 1_024
}

/// Truncates the texts of findings beyond the text limit of a case.
pub(crate) fn limit_findings(findings: &mut [CaseFinding]) {
    let mut room = CASE_TEXT_BYTES;
    for finding in findings {
        if finding.text.len() > room.max(FINDING_TEXT_BYTES) {
            finding
                .text
                .truncate(finding.text.floor_char_boundary(FINDING_TEXT_BYTES));
        }
        room = room.saturating_sub(finding.text.len());
    }
}
