//! Limits of what the state remembers (RG-9): each history has a number, and a rule for what goes when it is reached.
//!
//! | history | limit | what goes |
//! |---|---|---|
//! | jobs that are over | [`JOBS_OVER_MAX`], [`JOBS_OVER_AGE`] | the one that ended first; its name remains reserved |
//! | names of removed jobs | [`JOB_NAMES_MAX`] | the oldest |
//! | progress and spans of a job that is over | [`POINTS_OVER_MAX`] | every second point, the oldest spans |
//! | plans of a job | [`PLANS_PER_JOB_MAX`] | the oldest, except that of the generation that trained last |
//! | closed cases | [`CASES_CLOSED_MAX`], [`CASES_BYTES_MAX`] | the oldest |
//! | text of a case | [`CASE_TEXT_BYTES`] | the ends of texts |
//! | sequence numbers of nodes | [`SEQUENCES_MAX`] | names that are not in the fleet |
//! | committed checkpoints of a job | [`COMMITTED_MAX`] | the oldest that retention does not keep |
//!
//! Readers of history lift the limits with [`State::without_limits`].

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::{Case, CaseId, CaseState, Finding, JobId, PlanId};
use serde::{Deserialize, Serialize};

use crate::brain::Turn;
use crate::{Event, Job, State};

/// Jobs that are over.
pub(crate) const JOBS_OVER_MAX: usize = 1_000;
/// How long a job that is over is remembered at most.
pub(crate) const JOBS_OVER_AGE: Duration = Duration::from_secs(30 * 86_400);
/// Failures that are gathered, or were concluded a short while ago.
pub(crate) const DRAFTS_MAX: usize = 1_024;
/// Names of removed jobs, which cannot be used again.
pub(crate) const JOB_NAMES_MAX: usize = 100_000;
/// Progress points, and spans, of a job that is over.
pub(crate) const POINTS_OVER_MAX: usize = 256;
/// Plans of one job.
pub(crate) const PLANS_PER_JOB_MAX: usize = 64;
/// Cases that ask for nothing more.
pub(crate) const CASES_CLOSED_MAX: usize = 2_000;
/// Text of all cases that ask for nothing more, bytes.
pub(crate) const CASES_BYTES_MAX: usize = 32 << 20;
/// Text of the findings of one case, bytes.
pub(crate) const CASE_TEXT_BYTES: usize = 256 << 10;
/// Text of a finding once those before it have used that up, bytes.
const FINDING_TEXT_BYTES: usize = 200;
/// Nodes whose newest sequence number is remembered.
pub(crate) const SEQUENCES_MAX: usize = 100_000;
/// Committed checkpoints of one job.
pub(crate) const COMMITTED_MAX: usize = 512;
/// Newest checkpoints whose stalls are remembered for each rank.
pub(crate) const STALLS_SHOWN: usize = 16;
/// Kinds of failures of one job whose retries are counted.
pub(crate) const RETRIES_MAX: usize = 64;
/// Actions noted in one case.
pub(crate) const ACTIONS_MAX: usize = 512;

/// What the limits have removed, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Closed cases.
    pub cases: u64,
    /// Jobs that were over.
    pub jobs: u64,
}

impl Turn<'_> {
    /// Removes what is beyond the limits and may have grown by this event. `cases` is how many there were before.
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
            .map(|(name, job)| (job.ended_at, name.clone()))
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

impl State {
    /// A history that is longer than it may be, its length and its limit.
    pub(crate) fn beyond_limits(&self) -> Option<(&'static str, usize, usize)> {
        let over = self.jobs.values().filter(|job| job.is_over()).count();
        let plans = |name: &JobId| self.plans.values().filter(|plan| plan.job == *name).count();
        let of_jobs = |length: fn(&Job) -> usize| self.jobs.values().map(length).max().unwrap_or(0);
        let closed = self
            .cases
            .all()
            .values()
            .filter(|case| case.state != CaseState::Open)
            .count();
        let histories = [
            // Those that ended since a job was last submitted are not removed yet.
            ("jobs that are over", over, 2 * JOBS_OVER_MAX),
            ("names of removed jobs", self.removed_names.len(), JOB_NAMES_MAX),
            (
                "plans of a job",
                self.jobs.keys().map(plans).max().unwrap_or(0),
                PLANS_PER_JOB_MAX + 1,
            ),
            // A running job holds the case that it recovers from.
            ("closed cases", closed, CASES_CLOSED_MAX + self.jobs.len() + DRAFTS_MAX),
            ("sequence numbers", self.seen.len(), SEQUENCES_MAX + self.fleet.len()),
            ("spans of nodes", self.node_spans.len(), 4_096),
            (
                "checkpoints",
                of_jobs(|job| job.checkpoints.committed.len()),
                COMMITTED_MAX + 64,
            ),
            ("progress points", of_jobs(|job| job.progress.len()), 4_096),
            ("spans of ranks", of_jobs(|job| job.spans.len()), 4_096),
            ("retried failures", of_jobs(|job| job.retries.len()), RETRIES_MAX),
            ("running ranks", of_jobs(|job| job.running.len()), of_jobs(world_size)),
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

    /// Keeps the newest plans of a job, and that of the generation whose ranks were started last.
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
            .filter_map(|job| job.case.or(job.hang.case))
            .collect();
        let is_done =
            |case: &Case| matches!(case.state, CaseState::Closed | CaseState::Recovered) && !used.contains(&case.id);
        let (mut count, mut bytes) = (0, 0);
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

impl Job {
    /// Keeps less of a job that is over.
    fn thin(&mut self) {
        while self.progress.len() > POINTS_OVER_MAX {
            let mut keep = false;
            self.progress.retain(|_| {
                keep = !keep;
                keep
            });
        }
        let many = self.spans.len().saturating_sub(POINTS_OVER_MAX);
        self.spans.drain(..many);
        self.tempo = crate::Tempo::default();
        self.hang = crate::Hang::default();
        self.answers = crate::Answers::default();
    }
}

fn world_size(job: &Job) -> usize {
    job.plan.as_ref().map_or(0, |plan| plan.world_size() as usize)
}

/// Bytes of the texts of a case.
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

/// Cuts texts of findings behind those that use up what a case may have.
pub(crate) fn limit_findings(findings: &mut [Finding]) {
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
