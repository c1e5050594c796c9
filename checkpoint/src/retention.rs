//! Which checkpoints stay.

use rankguard_model::JobId;

use crate::format::{AttemptSet, CheckpointId};
use crate::store::remove::{Lent, Removal};
use crate::store::{Lease, Problem, Store, StoreError};

/// Decides whether a file of a checkpoint may be removed now.
pub type MayRemove<'a> = &'a dyn Fn(CheckpointId) -> bool;

/// What was cleared away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Committed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// Committed checkpoints that a later attempt of the run had superseded.
    pub superseded: Vec<CheckpointId>,
    /// Folders without a manifest.
    pub torn: Vec<CheckpointId>,
    /// Left-over temporary files in folders that stay.
    pub temps: u64,
    /// What could not be removed, and checkpoints that stay although they are damaged. The next call tries again.
    pub problems: Vec<Problem>,
}

/// What a collection takes away, before it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Committed checkpoints that go, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// Folders without a manifest that go, oldest first.
    pub torn: Vec<CheckpointId>,
    /// Committed checkpoints that would go, but somebody is reading them ([`Store::lease`]) at this moment.
    pub leased: Vec<CheckpointId>,
    /// Committed checkpoints that stay, oldest first.
    pub stays: Vec<CheckpointId>,
    /// Newer ones than the oldest that is kept which do not load, and so do not count.
    pub problems: Vec<Problem>,
    /// Which of those that go were superseded by a later attempt of the run.
    pub superseded: Vec<CheckpointId>,
    /// Attempts of the run when this was planned.
    attempts: AttemptSet,
}

/// What [`collect`] would take away now.
pub fn plan(store: &Store, job: &JobId, keep: u32, pinned: &[CheckpointId]) -> Result<Plan, StoreError> {
    let attempts = store.attempts(job)?;
    let mut plan = Plan {
        attempts: attempts.clone(),
        ..Plan::default()
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
            Ok(_) => kept.push(*id),
            Err(error) => plan.problems.push(Problem::of(*id, store.dir(job, *id)?, None, &error)),
        }
    }
    let (Some(newest), Some(oldest)) = (kept.first(), kept.last()) else {
        plan.stays = folders.iter().filter_map(|(id, is)| is.then_some(*id)).collect();
        return Ok(plan);
    };
    for (id, committed) in &folders {
        // A rollback gives its checkpoints up only for a commit of its own.
        let replaced = attempts.superseded_by(*id).map(|first| newest.generation >= first);
        let overtaken = replaced.unwrap_or(if *committed { id < oldest } else { id < newest });
        let goes = overtaken && (replaced.is_some() || !pinned.contains(id));
        if *committed && goes && replaced.is_some() {
            plan.superseded.push(*id);
        }
        match (committed, goes) {
            (true, true) if matches!(store.hold_alone(job, *id), Ok(None)) => plan.leased.push(*id),
            (true, true) => plan.checkpoints.push(*id),
            (true, false) => plan.stays.push(*id),
            (false, true) => plan.torn.push(*id),
            (false, false) => {}
        }
    }
    Ok(plan)
}

/// Keeps the newest `keep` (at least one) checkpoints that load, whatever is in `pinned` and whatever somebody holds a lease
/// of, and removes every folder that is older than those, but for shards that one which stays borrows chunks from. Folders
/// without a manifest go when they are older than the newest good checkpoint: whoever was writing them has been overtaken.
/// While no checkpoint loads, nothing is removed; a damaged one that is newer than the oldest that is kept stays, for
/// someone to look at. Checkpoints that a later attempt of the run has superseded count for nothing, and go when that attempt has
/// committed one of its own.
pub fn collect(store: &Store, job: &JobId, keep: u32, pinned: &[CheckpointId]) -> Result<Collected, StoreError> {
    collect_while(store, job, keep, pinned, &|_| true)
}

/// The same, and asks `may_remove` before every removal of a file. A checkpoint for which it returns `false` is left as it is; the
/// rest of one that is half removed is a folder without a manifest, which the next collection removes.
pub fn collect_while(
    store: &Store,
    job: &JobId,
    keep: u32,
    pinned: &[CheckpointId],
    may_remove: MayRemove<'_>,
) -> Result<Collected, StoreError> {
    let plan = plan(store, job, keep, pinned)?;
    carry_out_while(store, job, plan, may_remove)
}

/// Takes away what is planned.
pub fn carry_out(store: &Store, job: &JobId, plan: Plan) -> Result<Collected, StoreError> {
    carry_out_while(store, job, plan, &|_| true)
}

fn carry_out_while(store: &Store, job: &JobId, plan: Plan, may_remove: MayRemove<'_>) -> Result<Collected, StoreError> {
    let mut collected = Collected {
        problems: plan.problems,
        ..Collected::default()
    };
    let problem =
        |id: CheckpointId, error: &StoreError| store.dir(job, id).map(|dir| Problem::of(id, dir, None, error));
    let mut stays = plan.stays;
    stays.extend(plan.leased);
    // Nobody can take a lease of what goes any more; what has been leased since the plan stays, with what it borrows.
    let mut alone: Vec<(CheckpointId, Option<Lease>)> = Vec::new();
    for id in plan.checkpoints {
        let held = store.hold_alone(job, id);
        // An attempt that began since may start from this checkpoint: it took its lease before its record was written.
        if store.attempts(job)? != plan.attempts {
            return Ok(collected);
        }
        match held {
            Ok(None) => stays.push(id),
            Ok(Some(hold)) => alone.push((id, Some(hold))),
            // It is gone already, or no file that a reader could hold.
            Err(StoreError::Missing { .. } | StoreError::NotAFile { .. }) => alone.push((id, None)),
            // A reader may hold what cannot be opened just now.
            Err(error) => {
                collected.problems.push(problem(id, &error)?);
                stays.push(id);
            }
        }
    }
    let lent = store.lent_to(job, stays.iter().copied())?;
    for id in &stays {
        collected.temps += store.clear_abandoned(job, *id)?;
    }
    for (id, _hold) in &alone {
        let id = *id;
        match store.remove_unlent(job, id, &lent, &|| may_remove(id)) {
            Ok(Removal::Refused) => {}
            Ok(_) if plan.superseded.contains(&id) => collected.superseded.push(id),
            Ok(_) => collected.checkpoints.push(id),
            Err(error) => collected.problems.push(problem(id, &error)?),
        }
    }
    for id in plan.torn {
        match remove_torn(store, job, id, &lent, may_remove) {
            Ok(Removal::Whole) => collected.torn.push(id),
            Ok(_) => {}
            Err(error) => collected.problems.push(problem(id, &error)?),
        }
    }
    Ok(collected)
}

/// Removes a folder without a manifest, unless it is being filled from another tier, or was filled since the plan.
fn remove_torn(
    store: &Store,
    job: &JobId,
    id: CheckpointId,
    lent: &Lent,
    may_remove: MayRemove<'_>,
) -> Result<Removal, StoreError> {
    if !store.dir(job, id)?.is_dir() {
        return Ok(Removal::Whole);
    }
    let Some(_lease) = store.try_fill_lease(job, id)? else {
        return Ok(Removal::Refused);
    };
    if store.has_live_writer(job, id)? || store.committed_ids(job)?.contains(&id) {
        return Ok(Removal::Refused);
    }
    store.remove_unlent(job, id, lent, &|| may_remove(id))
}
