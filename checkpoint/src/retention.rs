//! Removal of checkpoints that retention no longer requires.

use rankguard_model::{Generation, JobId};

use crate::format::{AttemptSet, CheckpointId};
use crate::store::remove::{BorrowedShards, RemovalResult};
use crate::store::{CheckpointLease, Store, StoreError, StoreProblem, VerifyDepth};
use crate::verify::verify_images;

/// Callback that returns true if a file of a checkpoint may be removed now.
pub type RemovalCheck<'a> = &'a dyn Fn(CheckpointId) -> bool;

/// Result of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionReport {
    /// Removed committed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// Removed committed checkpoints that a later attempt of the run had superseded.
    pub superseded: Vec<CheckpointId>,
    /// Removed folders without a manifest.
    pub torn: Vec<CheckpointId>,
    /// Number of abandoned temporary files removed from retained folders.
    pub temps: u64,
    /// Failed removals, and retained checkpoints that are damaged. The next call tries again.
    pub problems: Vec<StoreProblem>,
}

/// Planned removals of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionPlan {
    /// Committed checkpoints to remove, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// Folders without a manifest to remove, oldest first.
    pub torn: Vec<CheckpointId>,
    /// Other folders without a manifest, oldest first: their job may still complete them.
    pub incomplete: Vec<CheckpointId>,
    /// Committed checkpoints to remove that a reader holds a lease of at the moment ([`Store::lease`]).
    pub leased: Vec<CheckpointId>,
    /// Retained committed checkpoints, oldest first.
    pub stays: Vec<CheckpointId>,
    /// Checkpoints newer than the oldest retained one that are damaged and therefore not counted.
    pub problems: Vec<StoreProblem>,
    /// Checkpoints of which every byte was read and is as committed, newest first; empty at the depth of names.
    pub verified: Vec<CheckpointId>,
    /// Checkpoints to remove that a later attempt of the run superseded.
    pub superseded: Vec<CheckpointId>,
    /// Attempts of the run at planning time.
    attempts: AttemptSet,
}

/// Plans a collection without removing anything; see [`collect`]. At [`VerifyDepth::Bytes`] the newest `keep`
/// checkpoints count only if every byte is as committed.
pub fn plan(
    store: &Store,
    job: &JobId,
    keep: u32,
    pinned: &[CheckpointId],
    depth: VerifyDepth,
) -> Result<CollectionPlan, StoreError> {
    let attempts = store.attempts(job)?;
    let mut plan = CollectionPlan {
        attempts: attempts.clone(),
        ..CollectionPlan::default()
    };
    let folders = store.folders(job)?;
    let mut kept = Vec::new();
    let current = |id: CheckpointId| !attempts.is_superseded(id);
    let counted = |(id, committed): &&(CheckpointId, bool)| *committed && current(*id);
    for (id, _) in folders.iter().rev().filter(counted) {
        if kept.len() >= keep.max(1) as usize {
            break;
        }
        match store.load(job, *id) {
            Ok(_) if depth == VerifyDepth::Names => kept.push(*id),
            Ok(checkpoint) => match verify_images(store, &checkpoint)? {
                damage if damage.is_empty() => {
                    plan.verified.push(*id);
                    kept.push(*id);
                }
                damage => plan.problems.extend(damage),
            },
            Err(error) => plan
                .problems
                .push(StoreProblem::of(*id, store.dir(job, *id)?, None, &error)),
        }
    }
    let (Some(newest), Some(oldest)) = (kept.first(), kept.last()) else {
        plan.stays = folders.iter().filter_map(|(id, is)| is.then_some(*id)).collect();
        plan.incomplete = folders.iter().filter_map(|(id, is)| (!is).then_some(*id)).collect();
        return Ok(plan);
    };
    let fence = newest_committed_generation(&folders);
    for (id, committed) in &folders {
        // Checkpoints that a rollback superseded are removed only once it has a commit of its own.
        let replaced = attempts.superseded_by(*id).map(|first| newest.generation >= first);
        let is_fenced = Some(id.generation) < fence;
        let overtaken = replaced.unwrap_or(if *committed {
            id < oldest
        } else {
            id < newest || is_fenced
        });
        let goes = overtaken && (replaced.is_some() || !pinned.contains(id));
        if *committed && goes && replaced.is_some() {
            plan.superseded.push(*id);
        }
        match (committed, goes) {
            (true, true) if matches!(store.hold_alone(job, *id), Ok(None)) => plan.leased.push(*id),
            (true, true) => plan.checkpoints.push(*id),
            (true, false) => plan.stays.push(*id),
            (false, true) => plan.torn.push(*id),
            (false, false) => plan.incomplete.push(*id),
        }
    }
    Ok(plan)
}

/// Returns the newest generation with a commit: the store refuses commits of earlier ones (RG-3).
fn newest_committed_generation(folders: &[(CheckpointId, bool)]) -> Option<Generation> {
    let committed = folders.iter().filter(|(_, committed)| *committed);
    committed.map(|(id, _)| id.generation).max()
}

/// Returns true if the store refuses a commit of this checkpoint because a later generation has committed.
pub fn is_fenced(store: &Store, job: &JobId, id: CheckpointId) -> Result<bool, StoreError> {
    Ok(Some(id.generation) < newest_committed_generation(&store.folders(job)?))
}

/// Retains the newest `keep` (at least one) checkpoints that load, all in `pinned`, and all with a lease. Removes every
/// folder that is older, except shards that a retained checkpoint borrows chunks from. Folders without a manifest are
/// removed if they are older than the newest good checkpoint, because their writer has been overtaken, and those of a
/// generation before one that has committed, because the store refuses their commit.
///
/// If no checkpoint loads, nothing is removed. A damaged checkpoint newer than the oldest retained one is left for
/// inspection. Superseded checkpoints are not counted, and are removed, pinned or not, once the attempt that superseded
/// them has a commit.
pub fn collect(store: &Store, job: &JobId, keep: u32, pinned: &[CheckpointId]) -> Result<CollectionReport, StoreError> {
    collect_while(store, job, keep, pinned, &|_| true)
}

/// Collects as [`collect`] does, and calls `may_remove` before each file removal. A checkpoint is left as it is once
/// that returns `false`; a half-removed checkpoint is a folder without a manifest, which the next collection removes.
pub fn collect_while(
    store: &Store,
    job: &JobId,
    keep: u32,
    pinned: &[CheckpointId],
    may_remove: RemovalCheck<'_>,
) -> Result<CollectionReport, StoreError> {
    let plan = plan(store, job, keep, pinned, VerifyDepth::Names)?;
    carry_out_while(store, job, plan, may_remove)
}

/// Executes a planned collection.
pub fn carry_out(store: &Store, job: &JobId, plan: CollectionPlan) -> Result<CollectionReport, StoreError> {
    carry_out_while(store, job, plan, &|_| true)
}

fn carry_out_while(
    store: &Store,
    job: &JobId,
    plan: CollectionPlan,
    may_remove: RemovalCheck<'_>,
) -> Result<CollectionReport, StoreError> {
    let mut collected = CollectionReport {
        problems: plan.problems,
        ..CollectionReport::default()
    };
    let problem =
        |id: CheckpointId, error: &StoreError| store.dir(job, id).map(|dir| StoreProblem::of(id, dir, None, error));
    let mut stays = plan.stays;
    stays.extend(plan.leased);
    // Holding each checkpoint exclusively prevents new leases; one leased since the plan is retained with its borrowed
    // shards.
    let mut alone: Vec<(CheckpointId, Option<CheckpointLease>)> = Vec::new();
    for id in plan.checkpoints {
        let held = store.hold_alone(job, id);
        // An attempt that started since may start from this checkpoint: it took its lease before its record was
        // written.
        if store.attempts(job)? != plan.attempts {
            return Ok(collected);
        }
        match held {
            Ok(None) => stays.push(id),
            Ok(Some(hold)) => alone.push((id, Some(hold))),
            // The manifest is already removed, or is no file that a reader could hold.
            Err(StoreError::Missing { .. } | StoreError::NotAFile { .. }) => alone.push((id, None)),
            // It cannot be opened now, but a reader may hold it.
            Err(error) => {
                collected.problems.push(problem(id, &error)?);
                stays.push(id);
            }
        }
    }
    let lent = store.borrowed_shards(job, stays.iter().copied())?;
    for id in &stays {
        collected.temps += store.clear_abandoned(job, *id)?;
    }
    for (id, _hold) in &alone {
        let id = *id;
        match store.remove_unborrowed(job, id, &lent, &|| may_remove(id)) {
            Ok(RemovalResult::Refused) => {}
            Ok(_) if plan.superseded.contains(&id) => collected.superseded.push(id),
            Ok(_) => collected.checkpoints.push(id),
            Err(error) => collected.problems.push(problem(id, &error)?),
        }
    }
    for id in plan.torn {
        match remove_torn(store, job, id, &lent, may_remove) {
            Ok(RemovalResult::Whole) => collected.torn.push(id),
            Ok(_) => {}
            Err(error) => collected.problems.push(problem(id, &error)?),
        }
    }
    Ok(collected)
}

/// Removes the folders without a manifest that `is_dead` names: attempts of which the caller knows that they are never
/// committed. A folder into which a shard is being written is left for a later call.
///
/// [`collect`] leaves those that are newer than the newest checkpoint, so that they could fill a store for good.
pub fn remove_dead(store: &Store, job: &JobId, is_dead: RemovalCheck<'_>) -> Result<CollectionReport, StoreError> {
    remove_uncommitted(store, job, is_dead, &|id, lent| {
        remove_torn(store, job, id, lent, is_dead)
    })
}

/// Removes the folders without a manifest that `is_wanted` names, also those that may still be committed: for jobs that
/// have ended. A checkpoint that is committed meanwhile remains. Folders into which a shard is being written, and those
/// with chunks that a committed checkpoint borrows, are left.
pub fn remove_incomplete(
    store: &Store,
    job: &JobId,
    is_wanted: RemovalCheck<'_>,
) -> Result<CollectionReport, StoreError> {
    store.end_removals(job)?;
    remove_uncommitted(store, job, is_wanted, &|id, lent| {
        if lent.contains_key(&id) {
            return Ok(RemovalResult::Refused);
        }
        store.remove_uncommitted(job, id)
    })
}

/// Removes the folders without a manifest that `is_wanted` names, each with `remove`, which is given the shards of which
/// committed checkpoints borrow chunks.
fn remove_uncommitted(
    store: &Store,
    job: &JobId,
    is_wanted: RemovalCheck<'_>,
    remove: &dyn Fn(CheckpointId, &BorrowedShards) -> Result<RemovalResult, StoreError>,
) -> Result<CollectionReport, StoreError> {
    let folders = store.folders(job)?;
    let committed = folders.iter().filter_map(|(id, committed)| committed.then_some(*id));
    let lent = store.borrowed_shards(job, committed)?;
    let mut collected = CollectionReport::default();
    for (id, _) in folders.iter().filter(|(id, committed)| !committed && is_wanted(*id)) {
        match remove(*id, &lent) {
            Ok(RemovalResult::Whole) => collected.torn.push(*id),
            Ok(_) => {}
            Err(error) => {
                let dir = store.dir(job, *id)?;
                collected.problems.push(StoreProblem::of(*id, dir, None, &error));
            }
        }
    }
    Ok(collected)
}

/// Removes a folder without a manifest, unless another tier is filling it or filled it since the plan.
fn remove_torn(
    store: &Store,
    job: &JobId,
    id: CheckpointId,
    lent: &BorrowedShards,
    may_remove: RemovalCheck<'_>,
) -> Result<RemovalResult, StoreError> {
    if !store.dir(job, id)?.is_dir() {
        return Ok(RemovalResult::Whole);
    }
    let Some(_lease) = store.try_fill_lease(job, id)? else {
        return Ok(RemovalResult::Refused);
    };
    if store.has_live_writer(job, id)? || store.committed_ids(job)?.contains(&id) {
        return Ok(RemovalResult::Refused);
    }
    store.remove_unborrowed(job, id, lent, &|| may_remove(id))
}
