//! Removal of checkpoints that retention no longer requires.

use std::collections::BTreeMap;

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
    /// Outcome of each folder that the collection was to remove.
    pub folders: BTreeMap<CheckpointId, CollectedFolder>,
}

/// Change of a folder by a collection, made or planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectedFolder {
    /// State of the folder after the collection.
    pub outcome: FolderOutcome,
    /// Bytes of its files that were removed.
    pub freed_bytes: u64,
}

/// State of a folder after a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderOutcome {
    /// The folder was removed.
    Removed,
    /// No checkpoint remains, but shards of which other checkpoints borrow chunks.
    Lends,
    /// Unchanged: a reader holds it, it is being written, or an incomplete one has chunks or files of others.
    InUse,
    /// Nothing of the checkpoint remains, but files that are not of a checkpoint.
    HoldsForeignFiles,
    /// The removal failed; the problem states the reason.
    Failed,
}

/// Removal of files by a collection, or none.
#[derive(Clone, Copy)]
enum CollectionMode<'a> {
    /// Each removal of a file is permitted by the callback.
    Execute(RemovalCheck<'a>),
    /// Only the outcomes are computed.
    Predict,
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
    run_plan(store, job, plan, CollectionMode::Execute(may_remove)).map(|(report, _)| report)
}

/// Executes a planned collection.
pub fn carry_out(store: &Store, job: &JobId, plan: CollectionPlan) -> Result<CollectionReport, StoreError> {
    run_plan(store, job, plan, CollectionMode::Execute(&|_| true)).map(|(report, _)| report)
}

/// Returns what [`carry_out`] would do now, without removing anything. With `removes_incomplete`, [`remove_incomplete`]
/// follows for the incomplete folders of the plan.
pub fn predict(
    store: &Store,
    job: &JobId,
    plan: CollectionPlan,
    removes_incomplete: bool,
) -> Result<CollectionReport, StoreError> {
    let incomplete = if removes_incomplete {
        plan.incomplete.clone()
    } else {
        Vec::new()
    };
    let (mut report, lent) = run_plan(store, job, plan, CollectionMode::Predict)?;
    for id in incomplete {
        let removal = store.folder_removal(job, id, &lent)?;
        let is_left = lent.contains_key(&id) || store.is_being_filled(job, id)?;
        let is_left = is_left || !store.may_remove_uncommitted(job, id)?;
        let result = Ok(if is_left {
            RemovalResult::Refused
        } else {
            RemovalResult::Whole
        });
        report.add_torn(store, job, id, removal.freed_bytes, result)?;
    }
    Ok(report)
}

impl CollectionReport {
    /// Records the result of the removal of a folder without a manifest.
    fn add_torn(
        &mut self,
        store: &Store,
        job: &JobId,
        id: CheckpointId,
        freed_bytes: u64,
        result: Result<RemovalResult, StoreError>,
    ) -> Result<(), StoreError> {
        if matches!(result, Ok(RemovalResult::Whole)) {
            self.torn.push(id);
        }
        self.add_folder(store, job, id, freed_bytes, result)
    }

    fn add_folder(
        &mut self,
        store: &Store,
        job: &JobId,
        id: CheckpointId,
        freed_bytes: u64,
        result: Result<RemovalResult, StoreError>,
    ) -> Result<(), StoreError> {
        let outcome = match &result {
            Ok(RemovalResult::Whole) => FolderOutcome::Removed,
            Ok(RemovalResult::Lends) => FolderOutcome::Lends,
            Ok(RemovalResult::Part | RemovalResult::Refused) => FolderOutcome::InUse,
            Err(StoreError::ForeignFiles { .. }) => FolderOutcome::HoldsForeignFiles,
            Err(_) => FolderOutcome::Failed,
        };
        let is_untouched = matches!(outcome, FolderOutcome::InUse | FolderOutcome::Failed);
        let freed_bytes = if is_untouched { 0 } else { freed_bytes };
        self.folders.insert(id, CollectedFolder { outcome, freed_bytes });
        if let Err(error) = result {
            self.problems
                .push(StoreProblem::of(id, store.dir(job, id)?, None, &error));
        }
        Ok(())
    }
}

/// Executes a plan, or predicts its result. Also returns the shards that remaining checkpoints borrow from.
fn run_plan(
    store: &Store,
    job: &JobId,
    plan: CollectionPlan,
    mode: CollectionMode<'_>,
) -> Result<(CollectionReport, BorrowedShards), StoreError> {
    let executes = matches!(mode, CollectionMode::Execute(_));
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
            return Ok((collected, BorrowedShards::new()));
        }
        match held {
            Ok(None) => stays.push(id),
            Ok(Some(hold)) => alone.push((id, Some(hold).filter(|_| executes))),
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
    for id in stays.iter().filter(|_| executes) {
        collected.temps += store.clear_abandoned(job, *id)?;
    }
    for (id, _hold) in &alone {
        let id = *id;
        let removal = store.folder_removal(job, id, &lent)?;
        let result = match mode {
            CollectionMode::Execute(may_remove) => store.remove_unborrowed(job, id, &lent, &|| may_remove(id)),
            CollectionMode::Predict => removal.result(),
        };
        let is_removed = matches!(
            result,
            Ok(RemovalResult::Whole | RemovalResult::Lends | RemovalResult::Part)
        );
        if is_removed && plan.superseded.contains(&id) {
            collected.superseded.push(id);
        } else if is_removed {
            collected.checkpoints.push(id);
        }
        collected.add_folder(store, job, id, removal.freed_bytes, result)?;
    }
    for id in plan.torn {
        let removal = store.folder_removal(job, id, &lent)?;
        let result = match mode {
            CollectionMode::Execute(may_remove) => remove_torn(store, job, id, &lent, may_remove),
            CollectionMode::Predict if is_in_use(store, job, id)? => Ok(RemovalResult::Refused),
            CollectionMode::Predict => removal.result(),
        };
        collected.add_torn(store, job, id, removal.freed_bytes, result)?;
    }
    Ok((collected, lent))
}

/// Returns true if a folder without a manifest is being filled, written or committed.
fn is_in_use(store: &Store, job: &JobId, id: CheckpointId) -> Result<bool, StoreError> {
    let is_written = store.is_being_filled(job, id)? || store.has_live_writer(job, id)?;
    Ok(is_written || store.committed_ids(job)?.contains(&id))
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
        let freed_bytes = store.folder_removal(job, *id, &lent)?.freed_bytes;
        collected.add_torn(store, job, *id, freed_bytes, remove(*id, &lent))?;
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
