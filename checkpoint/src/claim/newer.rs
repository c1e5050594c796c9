//! Committed checkpoints of a folder that are newer than those that a controller knows.

use rankguard_model::{CheckpointView, JobId, Step, Timestamp};

use super::{CHECKPOINTS_MAX, PASSED_OVER_MAX, passed_over_reason, view_of};
use crate::format::CheckpointId;
use crate::store::{Store, StoreError};

/// Committed checkpoints after a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewerCommits {
    /// Checkpoints that a job can start from, oldest first and one for each step.
    pub usable: Vec<CheckpointView>,
    /// Checkpoints that cannot be used, newest first, each with the reason.
    pub unusable: Vec<(CheckpointId, String)>,
}

/// Returns the committed checkpoints of a job for steps after `after` that no attempt has superseded. A checkpoint that storage
/// does not return at present counts as usable, because a restore waits for it.
pub fn newer_commits(
    store: &Store,
    job: &JobId,
    after: Option<Step>,
    at: Timestamp,
) -> Result<NewerCommits, StoreError> {
    let committed = store.committed_ids(job)?;
    let newer = |id: &&CheckpointId| after.is_none_or(|after| id.step > after);
    let mut candidates = committed.iter().rev().filter(newer).copied().peekable();
    let mut found = NewerCommits::default();
    if candidates.peek().is_none() {
        return Ok(found);
    }
    let attempts = store.attempts(job)?;
    for id in candidates.filter(|id| !attempts.is_superseded(*id)) {
        // A later generation has repeated this step.
        if found.usable.last().is_some_and(|later| id.step >= later.step) {
            continue;
        }
        match usable(store, job, id, at) {
            Ok(view) => found.usable.push(view),
            Err(reason) if found.unusable.len() < PASSED_OVER_MAX => found.unusable.push((id, reason)),
            Err(_) => {}
        }
        if found.usable.len() >= CHECKPOINTS_MAX {
            break;
        }
    }
    found.usable.reverse();
    Ok(found)
}

/// Returns the view of a checkpoint that loads, that its parity may rebuild, or that storage does not return at present.
fn usable(store: &Store, job: &JobId, id: CheckpointId, at: Timestamp) -> Result<CheckpointView, String> {
    let problem = match store.load(job, id) {
        Ok(checkpoint) => return Ok(view_of(&checkpoint.manifest, at)),
        Err(problem) => problem,
    };
    let manifest = if problem.failure().may_pass() {
        store.manifest(job, id).ok()
    } else if store.has_parity(job, id) {
        store.describe(job, id).ok().map(|checkpoint| checkpoint.manifest)
    } else {
        None
    };
    let manifest = manifest.ok_or_else(|| passed_over_reason(store, job, id, &problem))?;
    Ok(view_of(&manifest, at))
}
