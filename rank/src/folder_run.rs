//! The run of a local rank's folder: one folder, one run.
//!
//! An empty folder becomes that of a new run with its first commit. A folder with checkpoints is adopted by a restore; a program
//! that does not restore saves beside them, removes none of them, and cannot save a step that is there already.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rankguard_checkpoint::Store;
use rankguard_checkpoint::claim::random_run;
use rankguard_checkpoint::format::{AttemptRecord, CheckpointId, RunRecord};
use rankguard_model::{RunId, RunStart, Step, Timestamp};

use crate::local_error::LocalError;
use crate::slots::Owner;

/// What a program found in its folder, and whether the folder is its own.
#[derive(Debug)]
pub(crate) struct FolderRun {
    /// Committed by earlier generations, by step.
    found: BTreeMap<Step, CheckpointId>,
    /// Whether earlier generations left nothing.
    is_new: bool,
    /// The first checkpoint that was restored.
    start: OnceLock<CheckpointId>,
    /// The run, once its records stand.
    run: Mutex<Option<RunId>>,
}

impl FolderRun {
    /// Looks at the folder of a job before its generation writes there.
    pub(crate) fn open(store: &Store, owner: &Owner) -> Result<Self, LocalError> {
        let is_earlier = |id: &CheckpointId| id.generation < owner.generation;
        let committed = store.committed_ids(&owner.job)?;
        let newest = store.newest_generation(&owner.job)?;
        Ok(Self {
            found: committed
                .into_iter()
                .filter(is_earlier)
                .map(|id| (id.step, id))
                .collect(),
            is_new: newest.is_none_or(|newest| newest >= owner.generation),
            start: OnceLock::new(),
            run: Mutex::default(),
        })
    }

    /// The program has restored a checkpoint: the folder is that of its run.
    pub(crate) fn restored(&self, id: CheckpointId) {
        let _ = self.start.set(id);
    }

    /// Whether everything in the folder is of this program's run.
    pub(crate) fn is_own(&self) -> bool {
        (self.is_new && self.found.is_empty()) || self.start.get().is_some()
    }

    /// The committed checkpoint that a save of a step would stand beside.
    pub(crate) fn standing(&self, step: Step) -> Option<CheckpointId> {
        self.found.get(&step).copied().filter(|_| !self.is_own())
    }

    /// The run that manifests name; writes its records at the first call. `None` where the folder is not this program's.
    pub(crate) fn record(&self, store: &Store, owner: &Owner) -> Result<Option<RunId>, LocalError> {
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
            // A generation that was given twice has its record already.
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
