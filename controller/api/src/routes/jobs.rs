//! Routes of jobs.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rankguard_core::JobSummary;
use rankguard_model::{CheckpointView, Generation, JobId, JobView, Step};

use super::{StateRequest, json};
use crate::documents::{CheckpointDocument, JobDocument, JobSummaryDocument, Page, ProgressDocument, word};
use crate::page::PagedList;
use crate::problem::Problem;
use crate::query::CURSOR;

pub(super) fn list(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let after = PagedList::Jobs.after(request.query)?;
    let state = request.query.text("state");
    let jobs = request.state.job_summaries(request.now).into_iter();
    let jobs = jobs.filter(|job| {
        after.as_deref().is_none_or(|after| job.name.as_str() > after)
            && state.is_none_or(|state| word(&job.state) == state)
    });
    let page = PagedList::Jobs.page(request.query, jobs, |job| job.name.to_string());
    json(&Page {
        items: page.items.iter().map(JobSummaryDocument::of).collect(),
        next: page.next,
    })
}

pub(super) fn one(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let view = job_view(request)?;
    let gaps = request.state.lives().gaps();
    json(&JobDocument::of(&summary(request, &view), &view, gaps))
}

pub(super) fn progress(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    json(&ProgressDocument::of(&job_view(request)?.progress))
}

pub(super) fn checkpoints(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let invalid = || {
        let detail = "cursor was not given by this list";
        Problem::invalid(CURSOR.name, detail).hint("leave out the cursor to begin anew")
    };
    let after = match PagedList::Checkpoints.after(request.query)? {
        Some(key) => Some(parse_key(&key).ok_or_else(invalid)?),
        None => None,
    };
    let mut all = job_view(request)?.checkpoints;
    all.sort_by_key(|checkpoint| Reverse(key(checkpoint)));
    let older = all
        .iter()
        .filter(|checkpoint| after.is_none_or(|after| key(checkpoint) < after));
    let page = PagedList::Checkpoints.page(request.query, older, |checkpoint| {
        format!("{}.{}", checkpoint.generation, checkpoint.step)
    });
    let retained = retained_checkpoints(request);
    let is_retained = |checkpoint: &CheckpointView| retained.as_ref().is_none_or(|all| all.contains(&key(checkpoint)));
    let items = page.items.into_iter();
    json(&Page {
        items: items
            .map(|checkpoint| CheckpointDocument::of(checkpoint, is_retained(checkpoint)))
            .collect(),
        next: page.next,
    })
}

/// Returns the checkpoints that the retention rules of the job keep; none if it has no rules.
fn retained_checkpoints(request: &StateRequest<'_>) -> Option<BTreeSet<CheckpointKey>> {
    let job = request.state.jobs().get(&JobId::from(request.name))?;
    let policy = job.spec.checkpoint.as_ref()?;
    let kept = job.retained_checkpoints(policy, request.now);
    Some(kept.into_iter().map(|id| (id.generation, id.step)).collect())
}

/// Key of a checkpoint within its job.
type CheckpointKey = (Generation, Step);

fn key(checkpoint: &CheckpointView) -> CheckpointKey {
    (checkpoint.generation, checkpoint.step)
}

fn parse_key(text: &str) -> Option<CheckpointKey> {
    let (generation, step) = text.split_once('.')?;
    Some((Generation(generation.parse().ok()?), Step(step.parse().ok()?)))
}

pub(super) fn job_view(request: &StateRequest<'_>) -> Result<JobView, Problem> {
    let view = request.state.job_view(&JobId::from(request.name), request.now);
    view.ok_or_else(|| Problem::absent("job", request.name, "/api/v1/jobs"))
}

fn summary(request: &StateRequest<'_>, view: &JobView) -> JobSummary {
    let job = request.state.jobs().get(&view.spec.id);
    JobSummary {
        name: view.spec.id.clone(),
        state: view.state,
        reason: view.reason.clone(),
        generation: view.generation,
        step: view.current_step(),
        furthest_step: view.step,
        nodes: view.spec.nodes,
        ranks_per_node: view.spec.ranks_per_node,
        world_size: job.and_then(|job| job.plan()).map(rankguard_core::Plan::world_size),
        newest_checkpoint: view.checkpoints.last().cloned(),
        case: job.and_then(rankguard_core::Job::case),
        submitted_at: view.submitted_at,
        ended_at: view.ended_at,
    }
}
