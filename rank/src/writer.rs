//! The thread that makes sealed images durable and commits them, where no agent does.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_checkpoint::arena::Arena;
use rankguard_checkpoint::format::{CheckpointId, Digest, MAX_INDEX_BYTES, Manifest, ShardIndex};
use rankguard_checkpoint::store::Written;
use rankguard_checkpoint::{Store, give_way, retention};
use rankguard_model::{Rank, ShardSeal, Step, with_causes};

use crate::folder_run::FolderRun;
use crate::interrupt::{CHECK_INTERVAL, Interrupted, check_interrupts};
use crate::local_error::LocalError;
use crate::slots::Owner;

/// Shortest and longest pause between two looks at what other ranks have left in the store. No event crosses a shared file
/// system.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// A pause is this part of the time waited so far: what the looks add to a wait is as small a part of it.
const LOOKS_A_WAIT: u32 = 32;

/// Failures that are kept for the caller; of more, the newest.
const MAX_FAILURES: usize = 16;

/// Where images go.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) store: Store,
    pub(crate) owner: Owner,
    /// How long rank 0 waits for the shards of the others, and they for its commit.
    pub(crate) commit_within: Duration,
    /// Committed checkpoints to keep; 0 for all.
    pub(crate) keep: u32,
    /// The run of the folder.
    pub(crate) folder: Arc<FolderRun>,
    /// Set at the end of the session: no shard of another rank is waited for any more.
    pub(crate) abandoned: Arc<AtomicBool>,
}

/// The writer, from the trainer's side.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Task>,
    /// A task is in work.
    busy: bool,
    /// What retention gives up is being removed: all is durable, and nobody waits for it.
    clearing: bool,
    stop: bool,
    failures: VecDeque<(Step, String)>,
    last_failure: Option<(Step, String)>,
    failed: u64,
}

#[derive(Debug)]
struct Task {
    arena: Arc<Arena>,
    slot: u32,
    step: Step,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the writer's state panics")
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl State {
    fn note(&mut self, step: Step, ended: Result<(), LocalError>) {
        let Err(problem) = ended else { return };
        self.failed += 1;
        if self.failures.len() == MAX_FAILURES {
            self.failures.pop_front();
        }
        let reason = with_causes(&problem);
        self.last_failure = Some((step, reason.clone()));
        self.failures.push_back((step, reason));
    }
}

impl Writer {
    pub(crate) fn start(destination: Destination) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let work = {
            let shared = shared.clone();
            move || {
                give_way();
                run(&shared, &destination);
            }
        };
        let thread = std::thread::Builder::new()
            .name("rankguard-write".to_owned())
            .spawn(work)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn push(&self, arena: Arc<Arena>, slot: u32, step: Step) {
        self.shared
            .tell(|state| state.queue.push_back(Task { arena, slot, step }));
    }

    /// Gives the slot of the oldest image back that is not being written; `None` when there is none.
    pub(crate) fn give_up_oldest(&self) -> Option<Step> {
        let task = self.shared.lock().queue.pop_front()?;
        let _ = task.arena.release(task.slot);
        self.shared.changed.notify_all();
        Some(task.step)
    }

    /// Returns when a slot may have become free, at the latest after `limit`.
    pub(crate) fn wait_for_change(&self, limit: Duration) {
        let state = self.shared.lock();
        if !state.queue.is_empty() || state.busy {
            drop(self.shared.changed.wait_timeout(state, limit));
        }
    }

    /// Returns when nothing is left to write: `false` when that takes longer than `limit`.
    pub(crate) fn drain(&self, limit: Duration) -> Result<bool, Interrupted> {
        let until = Instant::now() + limit;
        let mut state = self.shared.lock();
        while !state.queue.is_empty() || state.busy {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // The check may run a signal handler, which must not meet the lock.
            drop(state);
            check_interrupts()?;
            state = self.shared.lock();
            if state.queue.is_empty() && !state.busy {
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left.min(CHECK_INTERVAL));
            state = waited.expect("no holder of the writer's state panics").0;
        }
        Ok(true)
    }

    /// Whether nothing is left to write or to clear away.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.shared.lock();
        state.queue.is_empty() && !state.busy && !state.clearing
    }

    /// What could not be made durable since this was last asked, oldest first.
    pub(crate) fn take_failures(&self) -> Vec<(Step, String)> {
        self.shared.lock().failures.drain(..).collect()
    }

    /// Ends the thread once what is queued is written: each write and each wait for the others ends within its deadline.
    pub(crate) fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.tell(|state| state.stop = true);
            let _ = thread.join();
        }
    }

    /// Leaves the thread to the process that started it; this one is a fork of it and has no such thread.
    pub(crate) fn forget_thread(&mut self) {
        std::mem::forget(self.thread.take());
    }

    /// The newest failure and its reason.
    pub(crate) fn last_failure(&self) -> Option<(Step, String)> {
        self.shared.lock().last_failure.clone()
    }

    /// How many images could not be made durable, in all.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.lock().failed
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(shared: &Shared, to: &Destination) {
    loop {
        let task = {
            let mut state = shared.lock();
            loop {
                if let Some(task) = state.queue.pop_front() {
                    state.busy = true;
                    break task;
                }
                if state.stop {
                    return;
                }
                let waited = shared.changed.wait(state);
                state = waited.expect("no holder of the writer's state panics");
            }
        };
        let step = task.step;
        let written = persist(&task, to);
        // Durable or void, the slot serves the next one; the commit needs the files alone.
        let _ = task.arena.release(task.slot);
        shared.changed.notify_all();
        let ended = written.and_then(|written| to.conclude(&written));
        let clears = ended.is_ok() && to.clears();
        shared.tell(|state| {
            (state.busy, state.clearing) = (false, clears);
            state.note(step, ended);
        });
        if clears {
            let cleared = to.clear();
            shared.tell(|state| {
                state.clearing = false;
                state.note(step, cleared);
            });
        }
    }
}

fn persist(task: &Task, to: &Destination) -> Result<Written, LocalError> {
    let image = task.arena.sealed(task.slot)?;
    Ok(to.store.write_shard(image.index(), &image)?)
}

impl Destination {
    /// What follows a durable shard: rank 0 commits when the others are there too.
    fn conclude(&self, written: &Written) -> Result<(), LocalError> {
        if self.owner.rank != Rank(0) {
            return Ok(());
        }
        let id = written.index.id();
        let until = Instant::now() + self.commit_within;
        let mut seals = vec![written.seal.clone()];
        for rank in (1..self.owner.world_size).map(Rank) {
            seals.push(self.seal_of(id, rank, until)?);
        }
        self.commit(id, &seals)
    }

    /// Whether this rank clears away what is older than what is kept.
    fn clears(&self) -> bool {
        self.keep > 0 && self.owner.rank == Rank(0)
    }

    fn clear(&self) -> Result<(), LocalError> {
        // Of a folder that this program has not adopted, what others committed is left alone.
        let own = |id: CheckpointId| self.folder.is_own() || id.generation == self.owner.generation;
        retention::collect_while(&self.store, &self.owner.job, self.keep, &[], &own)?;
        Ok(())
    }

    /// Commits a checkpoint whose shards are all durable.
    fn commit(&self, id: CheckpointId, seals: &[ShardSeal]) -> Result<(), LocalError> {
        let job = &self.owner.job;
        let older = self.store.committed_ids(job)?.into_iter().rev();
        let parent = older.into_iter().find(|other| *other < id);
        let mut manifest = Manifest::from_seals(job, id, parent, seals)?;
        manifest.run = self.folder.record(&self.store, &self.owner)?;
        self.store.commit(&manifest)?;
        Ok(())
    }

    /// The shard of another rank, as soon as its index is there: an index appears after the image is durable.
    fn seal_of(&self, id: CheckpointId, rank: Rank, until: Instant) -> Result<ShardSeal, LocalError> {
        let path = self.store.index_path(&self.owner.job, id, rank)?;
        let found = self.look(until, || path.symlink_metadata().is_ok())?;
        if !found && self.abandoned.load(Ordering::Relaxed) {
            let step = id.step;
            return Err(LocalError::Abandoned { step, rank, path });
        }
        if !found {
            let (step, within) = (id.step, self.commit_within);
            return Err(LocalError::Missing {
                step,
                rank,
                within,
                path,
            });
        }
        let unreadable = |source| LocalError::Read {
            path: path.clone(),
            source,
        };
        let length = path.metadata().map_err(unreadable)?.len();
        if length > MAX_INDEX_BYTES as u64 {
            return Err(unreadable(io::Error::other("it is larger than an index may be")));
        }
        let bytes = std::fs::read(&path).map_err(unreadable)?;
        let index = ShardIndex::from_bytes(&bytes).map_err(|problem| LocalError::Index {
            path: path.clone(),
            problem,
        })?;
        if (index.rank, index.id()) != (rank, id) {
            return Err(unreadable(io::Error::other("it is the index of another shard")));
        }
        Ok(ShardSeal {
            rank,
            step: index.step,
            world_size: index.world_size,
            index: Digest::of(&bytes).to_string(),
            bytes: index.image_bytes,
            ledger: index.ledger,
            schema: index.schema,
        })
    }

    /// Waits until this checkpoint is committed, or was and has been overtaken and cleared away since; `false` when that
    /// does not happen in time.
    pub(crate) fn wait_committed(&self, id: CheckpointId, until: Instant) -> Result<bool, LocalError> {
        let job = &self.owner.job;
        let mut failed = None;
        let there = self.look(until, || match self.store.committed_ids(job) {
            Ok(ids) => ids.last().is_some_and(|newest| *newest >= id),
            Err(problem) => {
                failed = Some(problem);
                true
            }
        })?;
        failed.map_or(Ok(there), |problem| Err(problem.into()))
    }
    /// Looks again and again for what another rank leaves; `false` when it is not there in time, or the session has ended.
    fn look(&self, until: Instant, mut there: impl FnMut() -> bool) -> Result<bool, Interrupted> {
        let since = Instant::now();
        while !there() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.abandoned.load(Ordering::Relaxed) {
                return Ok(false);
            }
            check_interrupts()?;
            let pause = (since.elapsed() / LOOKS_A_WAIT).clamp(LOOKS.0, LOOKS.1);
            std::thread::sleep(pause.min(left));
        }
        Ok(true)
    }
}
