//! Repair: overwrites damaged data with good copies. This is the only module that rewrites committed data.
//!
//! The manifest defines what is good: it holds the digest of each index, and an index holds the digest of each chunk. A
//! copy is therefore taken from a [`MirrorSource`] only after its digest matched, whichever mirror supplied it, and bytes
//! with the right digest are never rewritten. Chunks are written in place, and nothing else of their file is changed;
//! small files are written whole under a temporary name. The manifest is written last, when everything that it names is
//! whole (RG-1).
//!
//! No digest covers the manifest itself. The manifest of a mirror is accepted if it is intact, is of this checkpoint,
//! can be made whole, and
//! - ours is damaged, and no more of the intact local indexes contradict the mirror's manifest than match it; or
//! - ours is intact but names an index that is neither here nor in any mirror, so it can never load (a stale one); or
//! - ours is missing, and the mirror's manifest names an intact local index, or the step was requested. Otherwise the
//!   checkpoint was removed or never committed, and is left so.
//!
//! A restore that uses [`HealingStore`] instead of the store repairs the chunks that it reads in the same way.
//!
//! Not supported: undoing a removal without a request, and deciding which of two whole checkpoints of one name is
//! authentic.

mod healing;
mod image;
mod manifest_repair;

use std::collections::BTreeMap;
use std::path::PathBuf;

use rankguard_model::{JobId, Rank, Step};
use serde::Serialize;

use crate::format::{CheckpointId, MAX_INDEX_BYTES, MAX_MANIFEST_BYTES};
use crate::source::{ChunkError, ChunkSource};
use crate::store::{Store, StoreError, StoreProblem, files};
use crate::verify::verify_one;

pub use healing::HealingStore;

/// Other location with copies of whole checkpoints. All its data is verified, so it need not be trusted.
pub trait MirrorSource: ChunkSource {
    /// Returns the checkpoints of a job, oldest first.
    fn committed(&self, job: &JobId) -> Result<Vec<CheckpointId>, ChunkError>;

    /// Returns the content of a manifest; `None` if there is none.
    fn manifest_bytes(&self, job: &JobId, id: CheckpointId) -> Result<Option<Vec<u8>>, ChunkError>;

    /// Returns the content of the index of a rank; `None` if there is none.
    fn index_bytes(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Option<Vec<u8>>, ChunkError>;
}

/// Report entry of a repaired file or chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairEntry {
    pub checkpoint: CheckpointId,
    pub file: PathBuf,
    /// Rank of the file; `None` for a manifest.
    pub rank: Option<Rank>,
    /// Chunk number; `None` for a whole file.
    pub chunk: Option<u32>,
    /// Tensors with bytes in that chunk.
    pub tensors: Vec<String>,
    /// Number of bytes written.
    pub bytes: u64,
    /// Description of the damage.
    pub what: String,
    /// Name of the source of the good copy.
    pub from: String,
}

/// Result of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Checkpoints that were examined, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// Repaired files and chunks.
    pub mended: Vec<RepairEntry>,
    /// Remaining damage: no mirror has a good copy.
    pub left: Vec<StoreProblem>,
    /// Folders without a manifest that no mirror's manifest covers: in progress or torn. They were not changed.
    pub torn: Vec<CheckpointId>,
}

/// Reads every committed checkpoint of a job, or those of one step, and overwrites damaged or missing data with good
/// copies from `mirrors`, tried in order. With a step, a checkpoint that only a mirror has is restored completely.
pub fn repair(
    store: &Store,
    mirrors: &[&dyn MirrorSource],
    job: &JobId,
    step: Option<Step>,
) -> Result<RepairReport, StoreError> {
    let mut ids: BTreeMap<CheckpointId, bool> = store.folders(job)?.into_iter().collect();
    if let Some(step) = step {
        ids.retain(|id, _| id.step == step);
        for mirror in mirrors {
            // A mirror that cannot be listed may still supply files by name.
            let theirs = mirror.committed(job).unwrap_or_default();
            for id in theirs.into_iter().filter(|id| id.step == step) {
                ids.entry(id).or_insert(false);
            }
        }
    }
    let mut repaired = RepairReport::default();
    for (id, committed) in ids {
        let mut work = CheckpointRepair {
            store,
            mirrors,
            job,
            id,
            mended: Vec::new(),
            left: Vec::new(),
        };
        if work.checkpoint(committed, step.is_some())? {
            repaired.checkpoints.push(id);
        } else {
            repaired.torn.push(id);
        }
        if !work.mended.is_empty() && work.left.is_empty() {
            // Verify the whole checkpoint again after the repair.
            work.left = verify_one(store, job, id, &mut |_| {})?.1;
        }
        repaired.mended.append(&mut work.mended);
        repaired.left.append(&mut work.left);
    }
    Ok(repaired)
}

/// Repair of one checkpoint.
struct CheckpointRepair<'a> {
    store: &'a Store,
    mirrors: &'a [&'a dyn MirrorSource],
    job: &'a JobId,
    id: CheckpointId,
    mended: Vec<RepairEntry>,
    left: Vec<StoreProblem>,
}

impl MirrorSource for Store {
    fn committed(&self, job: &JobId) -> Result<Vec<CheckpointId>, ChunkError> {
        Ok(self.committed_ids(job)?)
    }

    fn manifest_bytes(&self, job: &JobId, id: CheckpointId) -> Result<Option<Vec<u8>>, ChunkError> {
        present(files::read(&self.manifest_path(job, id)?, MAX_MANIFEST_BYTES))
    }

    fn index_bytes(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Option<Vec<u8>>, ChunkError> {
        present(files::read(&self.index_path(job, id, rank)?, MAX_INDEX_BYTES))
    }
}

fn present(read: Result<Vec<u8>, StoreError>) -> Result<Option<Vec<u8>>, ChunkError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
