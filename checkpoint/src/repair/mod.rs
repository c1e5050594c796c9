//! Writing good copies over damaged ones: the one place where something that was committed is written again.
//!
//! What is good is what the manifest vouches for: it names each index by digest, an index names each chunk by digest. So
//! a copy is taken from a [`Mirror`] only after its digest was found to be the stated one, whoever gave it, and a byte
//! that has the right digest is never written. Chunks are written in place and nothing else of their file is touched;
//! small files come whole under a temporary name. The manifest comes last, when everything it names is whole (RG-1).
//!
//! A manifest has nobody above it. A mirror's is taken when it is intact, is of this very checkpoint, can be made whole, and
//! - ours is damaged, and not more of the intact indexes that stand here speak against the mirror's than for it; or
//! - ours is intact but names an index that is neither here nor in any mirror: it can never load (a stale one); or
//! - ours is missing, and the mirror's names an index that stands here, or the step was asked for. Without either, the
//!   checkpoint was removed or never committed, and is left so.
//!
//! A restore that is given [`Healing`] instead of the store does the same in passing, for the chunks that it needed.
//!
//! Absent: undoing a removal by itself, and judging which of two whole checkpoints of one name is the true one.

mod healing;
mod image;
mod names;

use std::collections::BTreeMap;
use std::path::PathBuf;

use rankguard_model::{JobId, Rank, Step};
use serde::Serialize;

use crate::format::{CheckpointId, MAX_INDEX_BYTES, MAX_MANIFEST_BYTES};
use crate::source::{ChunkError, ChunkSource};
use crate::store::{Problem, Store, StoreError, files};
use crate::verify::verify_one;

pub use healing::Healing;

/// Another place that holds copies of whole checkpoints. What it gives is checked, so it need not be trusted.
pub trait Mirror: ChunkSource {
    /// Checkpoints of a job that it holds, oldest first.
    fn committed(&self, job: &JobId) -> Result<Vec<CheckpointId>, ChunkError>;

    /// Content of a manifest; `None` when it has none.
    fn manifest_bytes(&self, job: &JobId, id: CheckpointId) -> Result<Option<Vec<u8>>, ChunkError>;

    /// Content of a rank's index; `None` when it has none.
    fn index_bytes(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Option<Vec<u8>>, ChunkError>;
}

/// Something that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mended {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The file.
    pub file: PathBuf,
    /// The rank, where the file is a rank's.
    pub rank: Option<Rank>,
    /// The chunk; `None` for a whole file.
    pub chunk: Option<u32>,
    /// Tensors with bytes in that chunk.
    pub tensors: Vec<String>,
    /// Bytes written.
    pub bytes: u64,
    /// What was wrong.
    pub what: String,
    /// Where the good copy came from.
    pub from: String,
}

/// What a repair did, and what it could not do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Checkpoints that were looked at, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// What was written.
    pub mended: Vec<Mended>,
    /// What is still wrong: no mirror has a good copy, or it could not be written.
    pub left: Vec<Problem>,
    /// Folders without a manifest that no mirror vouches for: being written, or torn. They were left alone.
    pub torn: Vec<CheckpointId>,
}

/// Reads every committed checkpoint of a job, or those of one step, and writes good copies from `mirrors` (asked in that
/// order) over what is damaged or missing. With a step, a checkpoint that only a mirror has is brought back whole.
pub fn repair(store: &Store, mirrors: &[&dyn Mirror], job: &JobId, step: Option<Step>) -> Result<Repaired, StoreError> {
    let mut ids: BTreeMap<CheckpointId, bool> = store.folders(job)?.into_iter().collect();
    if let Some(step) = step {
        ids.retain(|id, _| id.step == step);
        for mirror in mirrors {
            // A mirror that cannot be listed may still give what is asked of it by name.
            let theirs = mirror.committed(job).unwrap_or_default();
            for id in theirs.into_iter().filter(|id| id.step == step) {
                ids.entry(id).or_insert(false);
            }
        }
    }
    let mut repaired = Repaired::default();
    for (id, committed) in ids {
        let mut work = Work {
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
            // What was written is read again, with everything beside it: nothing is called whole on trust.
            work.left = verify_one(store, job, id, &mut |_| {})?.1;
        }
        repaired.mended.append(&mut work.mended);
        repaired.left.append(&mut work.left);
    }
    Ok(repaired)
}

/// The repair of one checkpoint.
struct Work<'a> {
    store: &'a Store,
    mirrors: &'a [&'a dyn Mirror],
    job: &'a JobId,
    id: CheckpointId,
    mended: Vec<Mended>,
    left: Vec<Problem>,
}

impl Mirror for Store {
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
