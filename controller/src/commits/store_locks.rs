//! Store turns: one thread at a time works in a store, and a collection checks its permission before each removal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_model::JobId;
use tokio::sync::OwnedMutexGuard;

/// Guard of the exclusive turn in a store.
#[derive(Debug)]
pub(super) struct StoreLockGuard {
    _busy: OwnedMutexGuard<()>,
    /// Holds the turn alive: a turn without references is dropped.
    _turn: Arc<StoreLock>,
}

/// Turns of all stores of this controller.
#[derive(Debug, Default)]
pub(super) struct StoreLocks {
    stores: BTreeMap<PathBuf, Arc<StoreLock>>,
}

impl StoreLocks {
    /// Returns the turn of a store; different spellings of a path share one turn. Turns of idle stores are dropped.
    pub(super) fn of(&mut self, store: &str) -> Arc<StoreLock> {
        self.stores.retain(|_, turn| Arc::strong_count(turn) > 1);
        let parts = Path::new(store).components();
        let path: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
        self.stores.entry(path).or_default().clone()
    }
}

/// Turn and retained sets of one store.
#[derive(Debug, Default)]
pub(super) struct StoreLock {
    busy: Arc<tokio::sync::Mutex<()>>,
    /// Number of the newest commit or check. A collection belongs to the commit before it, and stops when the number
    /// grows.
    epoch: AtomicU64,
    /// Checkpoints that the retention rules of each job keep, as of its newest commit.
    pinned: Mutex<BTreeMap<JobId, BTreeSet<CheckpointId>>>,
}

impl StoreLock {
    /// Begins a commit and returns its number; the running collection stops before its next removal.
    pub(super) fn begin(&self, job: &JobId, pinned: Vec<CheckpointId>) -> u64 {
        let mut all = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(job.clone(), pinned.into_iter().collect());
        self.end_collections()
    }

    /// Stops the running collection before its next removal.
    pub(super) fn end_collections(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns the number of the newest commit or check; a removal that belongs to it stops when the number grows.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Waits until no other thread works in the store.
    pub(super) async fn wait(self: Arc<Self>) -> StoreLockGuard {
        StoreLockGuard {
            _busy: self.busy.clone().lock_owned().await,
            _turn: self,
        }
    }

    /// Returns the checkpoints that the retention rules of a job keep now.
    pub(super) fn pinned(&self, job: &JobId) -> Vec<CheckpointId> {
        let all = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(job).into_iter().flatten().copied().collect()
    }

    /// Returns true if the collection of the commit `epoch` may remove a file of a checkpoint.
    pub(super) fn may_remove(&self, epoch: u64, job: &JobId, id: CheckpointId) -> bool {
        let all = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_pinned = all.get(job).is_some_and(|pinned| pinned.contains(&id));
        !is_pinned && self.epoch.load(Ordering::SeqCst) == epoch
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, Step};

    use super::*;

    #[test]
    fn a_newer_commit_ends_the_collection_before_it_and_paths_name_one_store() {
        let mut turns = StoreLocks::default();
        let job = JobId::from("train");
        let id = |step| CheckpointId {
            step: Step(step),
            generation: Generation(1),
        };
        let turn = turns.of("/store/");
        let first = turn.begin(&job, vec![id(1)]);
        assert!(turn.may_remove(first, &job, id(2)) && !turn.may_remove(first, &job, id(1)));
        let second = turns.of("/store/.").begin(&job, vec![id(2)]);
        assert!(!turn.may_remove(first, &job, id(3)), "another commit has begun");
        assert!(turn.may_remove(second, &job, id(1)) && !turn.may_remove(second, &job, id(2)));
        turn.end_collections();
        assert!(!turn.may_remove(second, &job, id(1)));
        drop(turn);
        turns.of("/other");
        assert_eq!(turns.stores.len(), 1);
    }
}
