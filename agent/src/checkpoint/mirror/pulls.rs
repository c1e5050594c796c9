//! Pulls from object stores that are running on this node: ranks that need one checkpoint share one pull.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::object::ObjectError;
use rankguard_model::JobId;

/// Checkpoint, source and destination of a pull.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PullKey {
    pub(super) url: String,
    pub(super) store: String,
    pub(super) job: JobId,
    pub(super) id: CheckpointId,
}

/// Result of a pull; all callers that shared it receive the same.
pub(in crate::checkpoint) type PullResult = Result<(), Arc<ObjectError>>;

/// Pulls of this node.
#[derive(Debug, Default)]
pub(in crate::checkpoint) struct PullTable {
    running: Mutex<BTreeMap<PullKey, Arc<SharedPull>>>,
}

#[derive(Debug, Default)]
struct SharedPull {
    result: Mutex<Option<PullResult>>,
    ended: Condvar,
}

impl PullTable {
    /// Runs `pull`, or waits for a running one with the same key. Blocks; every request of a pull has a deadline of
    /// its own.
    pub(super) fn share(&self, key: &PullKey, pull: impl FnOnce() -> Result<(), ObjectError>) -> PullResult {
        let (shared, is_first) = self.join(key);
        if !is_first {
            return shared.wait();
        }
        // Wakes the other callers even if the pull panics.
        let _end = PullGuard {
            table: self,
            key,
            shared: &shared,
        };
        let result = pull().map_err(Arc::new);
        shared.set(result.clone());
        result
    }

    fn join(&self, key: &PullKey) -> (Arc<SharedPull>, bool) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.get(key) {
            Some(shared) => (shared.clone(), false),
            None => {
                let shared = Arc::new(SharedPull::default());
                running.insert(key.clone(), shared.clone());
                (shared, true)
            }
        }
    }
}

impl SharedPull {
    fn set(&self, result: PullResult) {
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(result);
        self.ended.notify_all();
    }

    fn wait(&self) -> PullResult {
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = slot.as_ref() {
                return result.clone();
            }
            slot = self.ended.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct PullGuard<'a> {
    table: &'a PullTable,
    key: &'a PullKey,
    shared: &'a SharedPull,
}

impl Drop for PullGuard<'_> {
    fn drop(&mut self) {
        let mut running = self.table.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(self.key);
        drop(running);
        self.shared.set(Err(Arc::new(ObjectError::Url {
            url: self.key.url.clone(),
            problem: "the thread of the pull ended before the pull did".to_owned(),
        })));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use rankguard_model::{Generation, Step};

    use super::*;

    fn key() -> PullKey {
        PullKey {
            url: "file:///mirror".to_owned(),
            store: "/store".to_owned(),
            job: JobId::from("train"),
            id: CheckpointId {
                step: Step(10),
                generation: Generation(1),
            },
        }
    }

    #[test]
    fn callers_of_one_checkpoint_share_one_pull_and_its_result() {
        let table = PullTable::default();
        let pulls = AtomicUsize::new(0);
        let missing = || ObjectError::Missing {
            url: "file:///mirror/x".to_owned(),
        };
        for result in [true, false] {
            let pull = || {
                pulls.fetch_add(1, Ordering::SeqCst);
                // Until the others have joined: the table, this caller and this look hold one count each.
                while Arc::strong_count(&table.join(&key()).0) < 3 + 5 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if result { Ok(()) } else { Err(missing()) }
            };
            let results: Vec<PullResult> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..6).map(|_| scope.spawn(|| table.share(&key(), pull))).collect();
                all.into_iter().map(|one| one.join().expect("no panic")).collect()
            });
            assert!(results.iter().all(|one| one.is_ok() == result));
        }
        assert_eq!(pulls.load(Ordering::SeqCst), 2, "one for each turn");
        assert!(table.running.lock().expect("no panic").is_empty());
    }

    #[test]
    fn a_pull_that_panics_keeps_no_caller_waiting() {
        let table = PullTable::default();
        let crashed = std::thread::scope(|scope| scope.spawn(|| table.share(&key(), || panic!("planted"))).join());
        assert!(crashed.is_err());
        assert!(table.share(&key(), || Ok(())).is_ok(), "the next one starts anew");
    }
}
