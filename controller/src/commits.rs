//! Commit executor: lists shards, writes manifests, removes checkpoints that retention does not keep, and checks
//! checkpoints that a node reported as damaged. All file access runs on blocking threads.
//!
//! One thread at a time works in a store ([`StoreLocks`]): a commit stops the running collection and waits for it, so
//! that no collection with an older retained set runs beside a newer commit. A thread that exceeds its deadline retains
//! its turn until it ends, and changes nothing after the call in which it hangs.

mod check;
mod collect;
mod replicas;
mod store_locks;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rankguard_checkpoint::claim::{NewerCommits, newer_commits};
use rankguard_checkpoint::format::{CheckpointId, Manifest};
use rankguard_checkpoint::{Store, StoreError, retention};
use rankguard_checkpoint_schedule::replica_differences::ReplicaDifference;
use rankguard_checkpoint_schedule::replica_differences::judgement::{JudgedDifferences, refusal};
use rankguard_core::{ChunkName, DeadAttempts, Event, SameSizeCheckpoint, UnusableCheckpoint};
use rankguard_model::{Generation, JobId, ShardSeal, Step, Timestamp, with_causes};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use self::collect::CheckpointCollection;
use self::store_locks::{StoreLock, StoreLockGuard, StoreLocks};
use crate::same_size;

/// Time limit of a commit. Then the checkpoint counts as void; if its manifest appears later, it is a complete
/// checkpoint that was not reported, never a corrupt one.
const COMMIT_DEADLINE: Duration = Duration::from_secs(60);

/// Time limit of a store listing, for which a job start waits.
const FIND_DEADLINE: Duration = Duration::from_secs(10);

/// Running commits (the decision core requests one at a time per job), collections (one per store) and checks (one per
/// checkpoint).
#[derive(Debug, Default)]
pub(crate) struct StoreTasks {
    running: JoinSet<TaskResult>,
    turns: StoreLocks,
    /// Removals of dead attempts that run, by store and job, each with the one to start after it.
    removals: BTreeMap<(String, JobId), Option<DeadAttempts>>,
}

/// Result of a task.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "commits are few and their ends are moved once")]
enum TaskResult {
    /// Event for the decision core, with the collection to start after it.
    Answered(Event, Option<CheckpointCollection>),
    /// End of a collection.
    Collected,
    /// End of a removal of dead attempts.
    Removed(String, JobId),
}

/// Parameters of a listing of a job folder.
#[derive(Debug)]
pub(crate) struct FolderListing {
    pub(crate) store: String,
    pub(crate) job: JobId,
    /// Generation that acts now.
    pub(crate) generation: Generation,
    /// Ended generation of which shards are listed.
    pub(crate) of: Generation,
    /// Step of the newest checkpoint of the journal.
    pub(crate) after: Option<Step>,
    /// Time of the request.
    pub(crate) now: Timestamp,
}

/// Content of a job folder that the journal may lack.
#[derive(Debug, Default)]
struct FolderContent {
    /// Uncommitted shards of the generation that trained last.
    seals: Vec<ShardSeal>,
    /// Newest generation with a folder.
    newest: Option<Generation>,
    /// Committed checkpoints after the newest one of the journal.
    newer: NewerCommits,
    /// The newest of them that only the same number of ranks restores.
    same_size: Vec<SameSizeCheckpoint>,
}

/// Replicas that a commit found to differ.
#[derive(Debug, Default)]
struct CommitFindings {
    /// Replicas that must be equal: evidence of silent data corruption.
    differing: Vec<ReplicaDifference>,
    /// Tensors with other values on each rank.
    per_rank: Vec<String>,
    /// Tensors that only the same number of ranks restores.
    same_size: Vec<String>,
}

/// Commit that was not made.
#[derive(Debug, Default)]
struct RefusedCommit {
    reason: String,
    /// Replicas that must be equal, and for which it was refused.
    differing: Vec<ReplicaDifference>,
}

impl From<String> for RefusedCommit {
    fn from(reason: String) -> Self {
        let differing = Vec::new();
        Self { reason, differing }
    }
}

/// Parameters of one commit.
#[derive(Debug)]
struct CommitTask {
    store: String,
    manifest: Manifest,
    keep: u32,
    turn: Arc<StoreLock>,
    /// Number of this commit in its store.
    epoch: u64,
    deadline: Duration,
}

impl StoreTasks {
    /// Starts a commit; [`next`](Self::next) returns its outcome. The running collection in the same store is stopped.
    pub(crate) fn start(&mut self, store: String, manifest: Manifest, keep: u32, pinned: Vec<CheckpointId>) {
        self.start_within(store, manifest, keep, pinned, COMMIT_DEADLINE);
    }

    fn start_within(
        &mut self,
        store: String,
        manifest: Manifest,
        keep: u32,
        pinned: Vec<CheckpointId>,
        deadline: Duration,
    ) {
        let turn = self.turns.of(&store);
        let epoch = turn.begin(&manifest.job, pinned);
        self.running.spawn(carry_out(CommitTask {
            store,
            manifest,
            keep,
            turn,
            epoch,
            deadline,
        }));
    }

    /// Starts a listing of the shards that an ended generation left in a store for steps later than a given one, and of the
    /// committed checkpoints of such steps; [`next`](Self::next) returns the result.
    pub(crate) fn find(&mut self, listing: FolderListing) {
        self.running
            .spawn(async move { TaskResult::Answered(find(listing).await, None) });
    }

    /// Starts a check of a checkpoint that a node reported as damaged; [`next`](Self::next) returns the result. Nothing
    /// is removed from the store before the next commit, because the job may have to return to an older checkpoint.
    pub(crate) fn check(&mut self, store: String, job: JobId, id: CheckpointId, chunk: Option<ChunkName>) {
        self.turns.of(&store).end_collections();
        self.running
            .spawn(async move { TaskResult::Answered(check::check(store, job, id, chunk).await, None) });
    }

    /// Starts the removal of the folders of attempts that are never committed, or starts it again after the one that runs.
    pub(crate) fn remove_dead(&mut self, store: String, job: JobId, dead: DeadAttempts) {
        match self.removals.entry((store, job)) {
            Entry::Occupied(mut running) => {
                running.insert(Some(dead));
            }
            Entry::Vacant(none) => {
                let (store, job) = none.key().clone();
                none.insert(None);
                let turn = self.turns.of(&store);
                self.running.spawn(remove_dead(store, job, dead, turn));
            }
        }
    }

    /// Returns the outcome of the next commit, listing or check that ends; pending while there is none. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            match self.running.join_next().await {
                Some(Ok(TaskResult::Answered(event, collection))) => {
                    if let Some(collection) = collection {
                        self.running.spawn(async move {
                            collection.run().await;
                            TaskResult::Collected
                        });
                    }
                    return event;
                }
                Some(Ok(TaskResult::Collected)) => {}
                Some(Ok(TaskResult::Removed(store, job))) => {
                    let key = (store, job);
                    if let Some(Some(dead)) = self.removals.remove(&key) {
                        self.remove_dead(key.0, key.1, dead);
                    }
                }
                // The tasks catch the panics of their threads and do not panic themselves.
                Some(Err(problem)) => warn!(%problem, "a commit ended without an outcome"),
                None => std::future::pending().await,
            }
        }
    }
}

async fn remove_dead(store: String, job: JobId, dead: DeadAttempts, turn: Arc<StoreLock>) -> TaskResult {
    let epoch = turn.epoch();
    let guard = turn.clone().wait().await;
    let (place, name) = (store.clone(), job.clone());
    let removal = spawn_blocking(move || {
        let _guard = guard;
        let is_dead = |id: CheckpointId| dead.has(id.generation, id.step) && turn.may_remove(epoch, &name, id);
        retention::remove_dead(&Store::at(place), &name, &is_dead)
    });
    match timeout(COMMIT_DEADLINE, removal).await {
        Ok(Ok(Ok(report))) => {
            for problem in &report.problems {
                warn!(%job, %problem, "removal of attempts that are never committed");
            }
        }
        Ok(Ok(Err(problem))) => warn!(%job, problem = with_causes(&problem), "attempts were not removed"),
        Ok(Err(problem)) => warn!(%job, %problem, "the removing thread failed"),
        Err(_) => warn!(%job, %store, "the store does not answer; attempts that are never committed stay in it"),
    }
    TaskResult::Removed(store, job)
}

async fn find(listing: FolderListing) -> Event {
    let FolderListing {
        store,
        job,
        generation,
        of,
        after,
        now,
    } = listing;
    let dir = store.clone();
    let whose = job.clone();
    let looked = timeout(
        FIND_DEADLINE,
        spawn_blocking(move || {
            let store = Store::at(dir);
            let newer = newer_commits(&store, &whose, after, now)?;
            Ok(FolderContent {
                seals: store.uncommitted_shards_of(&whose, of, after)?,
                newest: store.newest_generation(&whose)?,
                same_size: same_size::of_checkpoints(&store, &whose, &newer.usable),
                newer,
            })
        }),
    )
    .await;
    let looked = match looked {
        Ok(Ok(found)) => found.map_err(|problem: StoreError| with_causes(&problem)),
        Ok(Err(problem)) => Err(format!("the thread that looked failed: {problem}")),
        Err(_) => Err(format!("{store} has not answered within {} s", FIND_DEADLINE.as_secs())),
    };
    let (content, problem) = match looked {
        Ok(content) => (content, None),
        Err(problem) => (FolderContent::default(), Some(problem)),
    };
    let unusable = |(id, reason): (CheckpointId, String)| UnusableCheckpoint {
        step: id.step,
        generation: id.generation,
        reason,
    };
    Event::ShardsFound {
        job,
        generation,
        seals: content.seals,
        newest: content.newest,
        committed: content.newer.usable,
        same_size: content.same_size,
        unusable: content.newer.unusable.into_iter().map(unusable).collect(),
        problem,
    }
}

async fn carry_out(task: CommitTask) -> TaskResult {
    let CommitTask {
        store,
        manifest,
        keep,
        turn,
        epoch,
        deadline,
    } = task;
    let job = manifest.job.clone();
    let step = manifest.step;
    let generation = manifest.generation;
    let until = Instant::now() + deadline;
    let seconds = deadline.as_secs();
    let (outcome, guard) = match timeout_at(until, turn.clone().wait()).await {
        Err(_) => (
            Err(format!("other work in the store has not ended within {seconds} s").into()),
            None,
        ),
        Ok(guard) => {
            let given_up = Arc::new(AtomicBool::new(false));
            let thread = commit_thread(store.clone(), manifest, guard, given_up.clone());
            match timeout_at(until, thread).await {
                Ok(Ok((outcome, guard))) => (outcome, Some(guard)),
                Ok(Err(problem)) => (Err(format!("the committing thread failed: {problem}").into()), None),
                Err(_) => {
                    given_up.store(true, Ordering::SeqCst);
                    (
                        Err(format!("the store has not answered within {seconds} s").into()),
                        None,
                    )
                }
            }
        }
    };
    match outcome {
        Ok(CommitFindings {
            differing,
            per_rank,
            same_size,
        }) => {
            let collection = guard.map(|guard| CheckpointCollection::new(store, job.clone(), keep, turn, epoch, guard));
            let event = Event::ManifestCommitted {
                job,
                step,
                generation,
                differing,
                per_rank,
                same_size,
            };
            TaskResult::Answered(event, collection)
        }
        Err(RefusedCommit { reason, differing }) => {
            let event = Event::ManifestRefused {
                job,
                step,
                generation,
                reason,
                differing,
            };
            TaskResult::Answered(event, None)
        }
    }
}

/// Returns the turn with the outcome; a thread that is no longer awaited retains its turn until it ends.
async fn commit_thread(
    store: String,
    manifest: Manifest,
    guard: StoreLockGuard,
    given_up: Arc<AtomicBool>,
) -> Result<(CommitOutcome, StoreLockGuard), tokio::task::JoinError> {
    spawn_blocking(move || (commit(&store, &manifest, &given_up), guard)).await
}

type CommitOutcome = Result<CommitFindings, RefusedCommit>;

/// Compares the replicas of a checkpoint and commits it, unless some that must be equal are not: then no manifest is
/// written, so that no reader of the store takes it for a checkpoint. A manifest that exists is not taken back; its
/// differences are reported.
fn commit(store: &str, manifest: &Manifest, given_up: &AtomicBool) -> CommitOutcome {
    let failed = |problem: &StoreError| RefusedCommit::from(with_causes(problem));
    let store = Store::open(store).map_err(|e| failed(&e))?;
    let job = &manifest.job;
    let checkpoint = manifest.id();
    let exists = store.manifest(job, checkpoint).is_ok();
    let mut judged = JudgedDifferences::default();
    let mut same_size = Vec::new();
    let committed = store.commit_if(manifest, &mut |indexes| {
        judged = replicas::compare_with_parent(&store, manifest, indexes);
        same_size = same_size::first_tensors(indexes);
        (exists || judged.wrong.is_empty()) && !given_up.load(Ordering::SeqCst)
    });
    match (committed, refusal(&judged.wrong).filter(|_| !exists)) {
        (Err(_), Some(reason)) => Err(RefusedCommit {
            reason,
            differing: judged.wrong,
        }),
        (Err(problem), None) => Err(failed(&problem)),
        (Ok(committed), _) => {
            info!(%job, %checkpoint, ?committed, "checkpoint committed");
            Ok(CommitFindings {
                per_rank: replicas::first_tensors(&judged),
                differing: judged.wrong,
                same_size,
            })
        }
    }
}

#[cfg(test)]
mod tests;
