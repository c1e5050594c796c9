//! Upper limit of the steps that a rank may report.
//!
//! The limit is derived from the newest committed checkpoint, which needs the shards of all ranks, and not from the
//! newest reported step: otherwise one rank could raise the limit with every report.

use rankguard_model::{Step, Timestamp};

use super::{AuthorityResult, AuthorityRule, refuse};
use crate::Job;

/// Steps allowed beyond the newest committed checkpoint. The longest published runs have a few million steps; a job
/// that resumes from its own checkpoint starts at its own count.
const SLACK: u64 = 1_000_000_000;
/// Steps allowed per second since submission: a step of one microsecond leaves no time for a collective.
const PER_SECOND: u64 = 1_000_000;

/// Refuses a step beyond the limit.
pub(super) fn check(job: &Job, now: Timestamp, step: Step) -> AuthorityResult {
    let limit = limit(job, now);
    if step.0 <= limit {
        return Ok(());
    }
    let name = &job.spec.id;
    refuse(
        AuthorityRule::ImplausibleStep,
        format!("it claims step {step} of job {name}, which can have reached step {limit} at most"),
    )
}

fn limit(job: &Job, now: Timestamp) -> u64 {
    let committed = job.checkpoints.newest().map_or(0, |newest| newest.step.0);
    let made = now.since(job.submitted_at).as_secs().saturating_mul(PER_SECOND);
    committed.saturating_add(SLACK).saturating_add(made)
}
