//! Turns in stores: one thread works in a store at a time, and a collection asks before each removal whether it still may.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_model::JobId;
use tokio::sync::OwnedMutexGuard;

/// Held by the one that works in a store.
#[derive(Debug)]
pub(super) struct TurnGuard {
    _busy: OwnedMutexGuard<()>,
    /// A turn is forgotten when nothing refers to it any more.
    _turn: Arc<StoreTurn>,
}

/// The stores of this controller.
#[derive(Debug, Default)]
pub(super) struct StoreTurns {
    stores: BTreeMap<PathBuf, Arc<StoreTurn>>,
}

impl StoreTurns {
    /// The turn of a store; different spellings of its path are one store. Idle stores are forgotten.
    pub(super) fn of(&mut self, store: &str) -> Arc<StoreTurn> {
        self.stores.retain(|_, turn| Arc::strong_count(turn) > 1);
        let parts = Path::new(store).components();
        let path: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
        self.stores.entry(path).or_default().clone()
    }
}

/// One store.
#[derive(Debug, Default)]
pub(super) struct StoreTurn {
    busy: Arc<tokio::sync::Mutex<()>>,
    /// Number of the newest commit or check; a collection is of the commit before it, and ends when the number grows.
    epoch: AtomicU64,
    /// What the rules of each job keep, as of its newest commit.
    pinned: Mutex<BTreeMap<JobId, BTreeSet<CheckpointId>>>,
}

impl StoreTurn {
    /// Begins a commit: the collection that runs ends before its next removal. Gives the number of the commit.
    pub(super) fn begin(&self, job: &JobId, pinned: Vec<CheckpointId>) -> u64 {
        let mut all = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(job.clone(), pinned.into_iter().collect());
        self.end_collections()
    }

    /// Ends the collection that runs, before its next removal.
    pub(super) fn end_collections(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Waits until no other thread works in the store.
    pub(super) async fn wait(self: Arc<Self>) -> TurnGuard {
        TurnGuard {
            _busy: self.busy.clone().lock_owned().await,
            _turn: self,
        }
    }

    /// What the rules of a job keep now.
    pub(super) fn pinned(&self, job: &JobId) -> Vec<CheckpointId> {
        let all = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(job).into_iter().flatten().copied().collect()
    }

    /// Whether the collection of the commit `epoch` may remove a file of a checkpoint.
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
        let (mut turns, job) = (StoreTurns::default(), JobId::from("train"));
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
