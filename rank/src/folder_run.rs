//! Run of a local rank's folder: each folder belongs to one run.
//!
//! An empty folder becomes that of a new run with its first commit. A folder with checkpoints is adopted by a restore;
//! a program that does not restore cannot save there. Its checkpoints would supersede newer steps of the earlier run,
//! which retention would then remove.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rankguard_checkpoint::Store;
use rankguard_checkpoint::claim::random_run;
use rankguard_checkpoint::format::{AttemptRecord, CheckpointId, RunRecord};
use rankguard_model::{RunId, RunStart, Timestamp};

use crate::local_error::LocalError;
use crate::slots::ImageOwner;

/// State of the folder at the program's start, and its adoption.
#[derive(Debug)]
pub(crate) struct FolderRun {
    /// Newest checkpoint that an earlier generation committed.
    found: Option<CheckpointId>,
    /// True if no earlier generation left anything.
    is_new: bool,
    /// First checkpoint that was restored.
    start: OnceLock<CheckpointId>,
    /// Run, once its records are written.
    run: Mutex<Option<RunId>>,
}

impl FolderRun {
    /// Inspects the folder of a job before its generation writes there.
    pub(crate) fn open(store: &Store, owner: &ImageOwner) -> Result<Self, LocalError> {
        let is_earlier = |id: &CheckpointId| id.generation < owner.generation;
        let committed = store.committed_ids(&owner.job)?;
        let newest = store.newest_generation(&owner.job)?;
        Ok(Self {
            found: committed.into_iter().filter(is_earlier).max_by_key(|id| id.step),
            is_new: newest.is_none_or(|newest| newest >= owner.generation),
            start: OnceLock::new(),
            run: Mutex::default(),
        })
    }

    /// Records that the program has restored a checkpoint: the folder then belongs to its run.
    pub(crate) fn restored(&self, id: CheckpointId) {
        let _ = self.start.set(id);
    }

    /// Returns true if everything in the folder belongs to this program's run.
    pub(crate) fn is_own(&self) -> bool {
        (self.is_new && self.found.is_none()) || self.start.get().is_some()
    }

    /// Returns the newest checkpoint of an earlier run that this program has not restored from.
    pub(crate) fn unadopted(&self) -> Option<CheckpointId> {
        self.found.filter(|_| !self.is_own())
    }

    /// Returns the run for manifests; the first call writes its records. `None` if the folder is not this program's.
    pub(crate) fn record(&self, store: &Store, owner: &ImageOwner) -> Result<Option<RunId>, LocalError> {
        if !self.is_own() {
            return Ok(None);
        }
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if run.is_none() {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let created = Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
            let claim = random_run();
            let (record, _) = store.put_run(&RunRecord {
                run: claim.clone(),
                job: owner.job.clone(),
                created,
            })?;
            let start = self.start.get().map(|id| RunStart {
                job: owner.job.clone(),
                store: None,
                run: Some(record.run.clone()),
                step: id.step,
                generation: id.generation,
            });
            // A generation that was assigned twice has its record already.
            store.put_attempt(&AttemptRecord {
                run: record.run.clone(),
                job: owner.job.clone(),
                first: owner.generation,
                claim,
                start,
                created,
            })?;
            *run = Some(record.run);
        }
        Ok(run.clone())
    }
}
