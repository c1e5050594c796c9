//! Which checkpoints stay.

use rankguard_model::JobId;

use crate::format::CheckpointId;
use crate::store::{Problem, Store, StoreError};

/// What was cleared away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Committed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// Folders without a manifest.
    pub torn: Vec<CheckpointId>,
    /// Left-over temporary files in folders that stay.
    pub temps: u64,
    /// What could not be removed, and checkpoints that stay although they are damaged. The next call tries again.
    pub problems: Vec<Problem>,
}

/// Keeps the newest `keep` (at least one) checkpoints that load, and whatever is in `pinned` (being restored from), and
/// removes every folder that is older than those, but for shards that one which stays borrows chunks from. Folders without a manifest go when they are older than the newest
/// good checkpoint: whoever was writing them has been overtaken. While no checkpoint loads, nothing is removed; a
/// damaged one that is newer than the oldest that is kept stays, for someone to look at.
pub fn collect(store: &Store, job: &JobId, keep: u32, pinned: &[CheckpointId]) -> Result<Collected, StoreError> {
    let mut collected = Collected::default();
    let folders = store.folders(job)?;
    let mut kept = Vec::new();
    for (id, _) in folders.iter().rev().filter(|(_, committed)| *committed) {
        if kept.len() >= keep.max(1) as usize {
            break;
        }
        match store.load(job, *id) {
            Ok(_) => kept.push(*id),
            Err(error) => collected
                .problems
                .push(Problem::of(*id, store.dir(job, *id)?, None, &error)),
        }
    }
    let (Some(newest), Some(oldest)) = (kept.first(), kept.last()) else {
        return Ok(collected);
    };
    let goes = |(id, committed): &(CheckpointId, bool)| {
        let overtaken = if *committed { id < oldest } else { id < newest };
        overtaken && !pinned.contains(id)
    };
    let stay = folders.iter().filter(|folder| folder.1 && !goes(folder));
    let lent = store.lent_to(job, stay.map(|(id, _)| *id))?;
    for (id, committed) in folders.iter().copied() {
        if !goes(&(id, committed)) {
            if committed {
                collected.temps += store.clear_temps(job, id)?;
            }
            continue;
        }
        match store.remove_unlent(job, id, &lent) {
            Ok(_) if committed => collected.checkpoints.push(id),
            Ok(true) => {}
            Ok(false) => collected.torn.push(id),
            Err(error) => collected
                .problems
                .push(Problem::of(id, store.dir(job, id)?, None, &error)),
        }
    }
    Ok(collected)
}
