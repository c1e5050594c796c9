//! The executor of commits: finds what can be committed, writes manifests, removes what retention no longer keeps, and checks
//! checkpoints that a node has reported damaged. All of it on blocking threads.
//!
//! In one store one thread works at a time ([`StoreTurns`]): a commit ends the collection that runs there and waits for it, so that
//! no collection with an older list of checkpoints to keep runs beside a newer commit. A thread that is given up at its deadline
//! keeps its turn until it has ended, and changes nothing after the call that it hangs in.

mod check;
mod collect;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rankguard_checkpoint::format::{CheckpointId, Manifest, ShardIndex};
use rankguard_checkpoint::{Store, StoreError};
use rankguard_checkpoint_schedule::twins::{Difference, Replica, differences};
use rankguard_core::{ChunkName, Event};
use rankguard_model::{Generation, JobId, Step, with_causes};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use self::collect::Collection;
use self::turns::{StoreTurn, StoreTurns, TurnGuard};

/// How long a store may take. Then the checkpoint counts as void; should its manifest appear later after all, it is a
/// whole checkpoint that was not reported, and never a wrong one.
const COMMIT_DEADLINE: Duration = Duration::from_secs(60);

/// How long it may take to look what is there: a job waits for it to start.
const FIND_DEADLINE: Duration = Duration::from_secs(10);

/// Differences between replicas that one commit reports: the first name the machine, more say nothing new.
const DIFFERENCES_MAX: usize = 16;

/// Commits that are being carried out (the brain asks for one a job at a time, so there are no more than jobs), collections (one a
/// store) and checks (one a checkpoint).
#[derive(Debug, Default)]
pub(crate) struct Commits {
    running: JoinSet<Ended>,
    turns: StoreTurns,
}

/// A task that has ended.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "commits are few and their ends are moved once")]
enum Ended {
    /// With an answer for the brain, and what is to be removed after it.
    Answered(Event, Option<Collection>),
    /// A collection.
    Collected,
}

/// What one commit is to do.
#[derive(Debug)]
struct CommitTask {
    store: String,
    manifest: Manifest,
    keep: u32,
    turn: Arc<StoreTurn>,
    /// Number of this commit in its store.
    epoch: u64,
    deadline: Duration,
}

impl Commits {
    /// Begins a commit; its outcome comes from [`next`](Self::next). The collection that runs in the same store is ended.
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

    /// Looks what an ended generation has left in a store, of later steps than one; the answer comes from
    /// [`next`](Self::next).
    pub(crate) fn find(&mut self, store: String, job: JobId, generation: Generation, left: (Generation, Option<Step>)) {
        self.running
            .spawn(async move { Ended::Answered(find(store, job, generation, left).await, None) });
    }

    /// Reads a checkpoint that a node has reported damaged; the answer comes from [`next`](Self::next). Nothing is removed from the
    /// store before the next commit: the job may have to go back to an older checkpoint.
    pub(crate) fn check(&mut self, store: String, job: JobId, id: CheckpointId, chunk: Option<ChunkName>) {
        self.turns.of(&store).end_collections();
        self.running
            .spawn(async move { Ended::Answered(check::check(store, job, id, chunk).await, None) });
    }

    /// The outcome of the next commit, look or check that ends; waits for ever while there is none. Loses nothing when it is
    /// dropped.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            match self.running.join_next().await {
                Some(Ok(Ended::Answered(event, collection))) => {
                    if let Some(collection) = collection {
                        self.running.spawn(async move {
                            collection.run().await;
                            Ended::Collected
                        });
                    }
                    return event;
                }
                Some(Ok(Ended::Collected)) => {}
                // The tasks catch the panics of their threads and have none of their own.
                Some(Err(problem)) => warn!(%problem, "a commit ended without an outcome"),
                None => std::future::pending().await,
            }
        }
    }
}

async fn find(store: String, job: JobId, generation: Generation, (of, after): (Generation, Option<Step>)) -> Event {
    let (dir, whose) = (store.clone(), job.clone());
    let looked = timeout(
        FIND_DEADLINE,
        spawn_blocking(move || {
            let store = Store::at(dir);
            Ok((store.left_by(&whose, of, after)?, store.newest_generation(&whose)?))
        }),
    )
    .await;
    let looked = match looked {
        Ok(Ok(found)) => found.map_err(|problem: StoreError| with_causes(&problem)),
        Ok(Err(problem)) => Err(format!("the thread that looked failed: {problem}")),
        Err(_) => Err(format!("{store} has not answered within {} s", FIND_DEADLINE.as_secs())),
    };
    let (seals, newest, problem) = match looked {
        Ok((seals, newest)) => (seals, newest, None),
        Err(problem) => (Vec::new(), None, Some(problem)),
    };
    Event::ShardsFound {
        job,
        generation,
        seals,
        newest,
        problem,
    }
}

async fn carry_out(task: CommitTask) -> Ended {
    let CommitTask {
        store,
        manifest,
        keep,
        turn,
        epoch,
        deadline,
    } = task;
    let (job, step, generation) = (manifest.job.clone(), manifest.step, manifest.generation);
    let until = Instant::now() + deadline;
    let seconds = deadline.as_secs();
    let (outcome, guard) = match timeout_at(until, turn.clone().wait()).await {
        Err(_) => (
            Err(format!("other work in the store has not ended within {seconds} s")),
            None,
        ),
        Ok(guard) => {
            let given_up = Arc::new(AtomicBool::new(false));
            let thread = commit_thread(store.clone(), manifest, guard, given_up.clone());
            match timeout_at(until, thread).await {
                Ok(Ok((outcome, guard))) => (outcome, Some(guard)),
                Ok(Err(problem)) => (Err(format!("the committing thread failed: {problem}")), None),
                Err(_) => {
                    given_up.store(true, Ordering::SeqCst);
                    (Err(format!("the store has not answered within {seconds} s")), None)
                }
            }
        }
    };
    match outcome {
        Ok(differing) => {
            let collection = guard.map(|guard| Collection::new(store, job.clone(), keep, turn, epoch, guard));
            let event = Event::ManifestCommitted {
                job,
                step,
                generation,
                differing,
            };
            Ended::Answered(event, collection)
        }
        Err(reason) => {
            let event = Event::ManifestRefused {
                job,
                step,
                generation,
                reason,
            };
            Ended::Answered(event, None)
        }
    }
}

/// Gives the turn back with the outcome; a thread that is not waited for any more keeps it until it ends.
async fn commit_thread(
    store: String,
    manifest: Manifest,
    guard: TurnGuard,
    given_up: Arc<AtomicBool>,
) -> Result<(Result<Vec<Difference>, String>, TurnGuard), tokio::task::JoinError> {
    spawn_blocking(move || (commit(&store, &manifest, &given_up), guard)).await
}

/// Commits, then compares replicas. What fails after the commit refuses nothing. Gives the first differences between replicas
/// that must be equal.
fn commit(store: &str, manifest: &Manifest, given_up: &AtomicBool) -> Result<Vec<Difference>, String> {
    let store = Store::open(store).map_err(|e| with_causes(&e))?;
    let committed = store.commit_unless(manifest, &|| given_up.load(Ordering::SeqCst));
    let committed = committed.map_err(|e| with_causes(&e))?;
    let (job, checkpoint) = (&manifest.job, manifest.id());
    info!(%job, %checkpoint, ?committed, "checkpoint committed");
    Ok(match store.load(job, checkpoint) {
        Ok(loaded) => differing(&loaded.indexes),
        Err(problem) => {
            warn!(%job, problem = with_causes(&problem), "replicas were not compared");
            Vec::new()
        }
    })
}

/// Boxes that several ranks hold and whose chunks differ, the first few.
fn differing(indexes: &[ShardIndex]) -> Vec<Difference> {
    let replicas = indexes.iter().flat_map(|index| {
        let chunking = index.chunking();
        index.tensors.iter().enumerate().map(move |(at, entry)| {
            let chunks = chunking.chunks_of(at);
            Replica {
                rank: index.rank,
                tensor: &entry.boxed.name,
                offset: &entry.boxed.offset,
                shape: &entry.boxed.shape,
                chunk_bytes: u64::from(index.chunk_bytes),
                digests: &index.chunks[chunks.start as usize..chunks.end as usize],
            }
        })
    });
    let mut found = differences(replicas);
    found.truncate(DIFFERENCES_MAX);
    found
}

#[cfg(test)]
mod tests;
