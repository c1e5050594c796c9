//! Retention after a commit.

use std::sync::Arc;
use std::time::Duration;

use rankguard_checkpoint::{Store, retention};
use rankguard_model::{JobId, with_causes};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;

use super::store_locks::{StoreLock, StoreLockGuard};

/// Time limit of a collection; the next one continues the removal.
const COLLECT_DEADLINE: Duration = Duration::from_secs(600);

/// Removal of checkpoints that the retention rules of a job do not keep. Stops when a newer commit begins in the store.
#[derive(Debug)]
pub(super) struct CheckpointCollection {
    store: String,
    job: JobId,
    keep: u32,
    turn: Arc<StoreLock>,
    /// Number of the commit before it.
    epoch: u64,
    guard: StoreLockGuard,
}

impl CheckpointCollection {
    pub(super) fn new(
        store: String,
        job: JobId,
        keep: u32,
        turn: Arc<StoreLock>,
        epoch: u64,
        guard: StoreLockGuard,
    ) -> Self {
        Self {
            store,
            job,
            keep,
            turn,
            epoch,
            guard,
        }
    }

    /// Runs the collection up to its deadline. After the deadline the thread stops before its next removal, and retains
    /// its turn until it ends.
    pub(super) async fn run(self) {
        let job = self.job.clone();
        let turn = self.turn.clone();
        match timeout(COLLECT_DEADLINE, spawn_blocking(move || self.collect())).await {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => warn!(%job, %problem, "the collecting thread failed"),
            Err(_) => {
                turn.end_collections();
                let seconds = COLLECT_DEADLINE.as_secs();
                warn!(%job, seconds, "retention did not end in time; the next commit goes on with it");
            }
        }
    }

    fn collect(self) {
        let Self {
            store,
            job,
            keep,
            turn,
            epoch,
            guard: _guard,
        } = self;
        let may_remove = |id| turn.may_remove(epoch, &job, id);
        match retention::collect_while(&Store::at(store), &job, keep, &turn.pinned(&job), &may_remove) {
            Ok(collected) => {
                for problem in &collected.problems {
                    warn!(%job, %problem, "retention");
                }
            }
            Err(problem) => warn!(%job, problem = with_causes(&problem), "retention did not run"),
        }
    }
}
