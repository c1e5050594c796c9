//! Background writer of a rank without an agent: writes sealed images to the store; on rank 0 it also commits
//! checkpoints and removes expired ones.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_checkpoint::arena::Arena;
use rankguard_checkpoint::format::{CheckpointId, Digest, MAX_INDEX_BYTES, Manifest, ShardIndex};
use rankguard_checkpoint::store::WrittenShard;
use rankguard_checkpoint::{Store, lower_priority, retention};
use rankguard_model::{Rank, ShardSeal, Step, with_causes};

use crate::folder_run::FolderRun;
use crate::interrupt::{CHECK_INTERVAL, CallInterrupted, check_interrupts};
use crate::local_error::LocalError;
use crate::slots::ImageOwner;
use crate::void_marks::VoidMarks;

/// Shortest and longest poll interval for shards of other ranks and for commits: shared file systems deliver no events.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Divisor of the time waited so far that gives the poll interval. Polling then adds at most 1/32 to a wait, or the
/// shortest interval.
const LOOKS_A_WAIT: u32 = 32;

/// Maximum number of failures retained for [`ImageWriter::take_failures`]; older ones are dropped.
const MAX_FAILURES: usize = 16;

/// Destination of the images, and rules for their commit and retention.
#[derive(Debug, Clone)]
pub(crate) struct ImageDestination {
    pub(crate) store: Store,
    pub(crate) owner: ImageOwner,
    /// Longest wait of rank 0 for the shards of the others, and of the others for its commit.
    pub(crate) commit_within: Duration,
    /// Number of committed checkpoints to retain; 0 for all.
    pub(crate) keep: u32,
    /// Run that the folder belongs to.
    pub(crate) folder: Arc<FolderRun>,
    /// True once the rank is being closed: waits for other ranks end at the next poll.
    pub(crate) abandoned: Arc<AtomicBool>,
    /// Saves that are never committed, for the other ranks.
    pub(crate) marks: Arc<VoidMarks>,
}

/// Handle of the writer thread. Dropping it writes the queued images and joins the thread.
#[derive(Debug)]
pub(crate) struct ImageWriter {
    shared: Arc<SharedWriter>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct SharedWriter {
    state: Mutex<WriterState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WriterState {
    queue: VecDeque<WriteTask>,
    /// True while a task is being processed.
    busy: bool,
    /// True while expired checkpoints are being removed. [`ImageWriter::drain`] does not wait for this.
    clearing: bool,
    /// True if the thread must end once the queue is empty.
    stop: bool,
    /// Newest failures that the caller has not taken: step and reason.
    failures: VecDeque<(Step, String)>,
    last_failure: Option<(Step, String)>,
    /// Number of failures since the start.
    failed: u64,
}

/// Sealed image that waits to be written.
#[derive(Debug)]
struct WriteTask {
    arena: Arc<Arena>,
    slot: u32,
    step: Step,
}

impl SharedWriter {
    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().expect("no holder of the writer's state panics")
    }

    /// Changes the state and wakes all waiting threads.
    fn update_state(&self, change: impl FnOnce(&mut WriterState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl WriterState {
    /// Records the failure of a task, if it failed.
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

impl ImageWriter {
    /// Starts the writer thread at low priority. Returns an error if it cannot be started.
    pub(crate) fn start(destination: ImageDestination) -> io::Result<Self> {
        let shared = Arc::new(SharedWriter::default());
        let work = {
            let shared = shared.clone();
            move || {
                lower_priority();
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

    /// Queues the sealed image in `slot`. The writer releases the slot once the image is written or has failed.
    pub(crate) fn push(&self, arena: Arc<Arena>, slot: u32, step: Step) {
        self.shared
            .update_state(|state| state.queue.push_back(WriteTask { arena, slot, step }));
    }

    /// Drops the oldest image that is not being written, and releases its slot. Returns its step; `None` if there is
    /// none.
    pub(crate) fn give_up_oldest(&self) -> Option<Step> {
        let task = self.shared.lock().queue.pop_front()?;
        let _ = task.arena.release(task.slot);
        self.shared.changed.notify_all();
        Some(task.step)
    }

    /// Waits until the writer changes its state, for at most `limit`: a slot may then be free. Returns at once if
    /// nothing is being written.
    pub(crate) fn wait_for_change(&self, limit: Duration) {
        let state = self.shared.lock();
        if !state.queue.is_empty() || state.busy {
            drop(self.shared.changed.wait_timeout(state, limit));
        }
    }

    /// Waits until all images are written and all commits are done; returns `false` if that takes longer than `limit`.
    /// Returns an error if the wait is interrupted.
    pub(crate) fn drain(&self, limit: Duration) -> Result<bool, CallInterrupted> {
        let until = Instant::now() + limit;
        let mut state = self.shared.lock();
        while !state.queue.is_empty() || state.busy {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // The check may run a signal handler, so the lock must not be held.
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

    /// Returns true if nothing is left to write or to remove.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.shared.lock();
        state.queue.is_empty() && !state.busy && !state.clearing
    }

    /// Returns the failures since the last call with step and reason, oldest first, at most [`MAX_FAILURES`]: images
    /// that were not written, checkpoints that were not committed, and removals that failed after a commit.
    pub(crate) fn take_failures(&self) -> Vec<(Step, String)> {
        self.shared.lock().failures.drain(..).collect()
    }

    /// Ends the thread after all queued images, and joins it. Each wait for other ranks ends at its deadline, or at
    /// once if [`ImageDestination::abandoned`] is set.
    pub(crate) fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.update_state(|state| state.stop = true);
            let _ = thread.join();
        }
    }

    /// Drops the handle of the thread without joining it: a fork of the process has no such thread.
    pub(crate) fn forget_thread(&mut self) {
        std::mem::forget(self.thread.take());
    }

    /// Returns the newest failure since the start: step and reason.
    pub(crate) fn last_failure(&self) -> Option<(Step, String)> {
        self.shared.lock().last_failure.clone()
    }

    /// Returns the number of failures since the start, including failed commits and removals.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.lock().failed
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Processes tasks in order until the queue is empty and `stop` is set.
fn run(shared: &SharedWriter, to: &ImageDestination) {
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
        let id = to.id_of(step);
        to.marks.remove(id);
        let written = persist(&task, to);
        // The slot is released after a success and after a failure; the commit needs only the files.
        let _ = task.arena.release(task.slot);
        shared.changed.notify_all();
        let ended = written.and_then(|written| to.conclude(&written));
        if let Err(problem) = &ended {
            to.marks.put(id, &with_causes(problem));
        }
        let clears = ended.is_ok() && to.clears();
        shared.update_state(|state| {
            (state.busy, state.clearing) = (false, clears);
            state.note(step, ended);
        });
        if clears {
            let cleared = to.clear();
            shared.update_state(|state| {
                state.clearing = false;
                state.note(step, cleared);
            });
        }
    }
}

/// Writes a sealed image and its index to the store, durably.
fn persist(task: &WriteTask, to: &ImageDestination) -> Result<WrittenShard, LocalError> {
    let image = task.arena.sealed(task.slot)?;
    Ok(to.store.write_shard(image.index(), &image)?)
}

impl ImageDestination {
    /// Returns the id of a checkpoint of this session.
    pub(crate) fn id_of(&self, step: Step) -> CheckpointId {
        CheckpointId {
            step,
            generation: self.owner.generation,
        }
    }

    /// Completes the checkpoint of a durable shard: rank 0 waits for the shards of the other ranks and commits; other
    /// ranks have nothing to do.
    fn conclude(&self, written: &WrittenShard) -> Result<(), LocalError> {
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

    /// Returns true if this rank removes expired checkpoints.
    fn clears(&self) -> bool {
        self.keep > 0 && self.owner.rank == Rank(0)
    }

    /// Removes the checkpoints that exceed the number to retain.
    fn clear(&self) -> Result<(), LocalError> {
        // In a folder of another run, only checkpoints of this generation are removed.
        let own = |id: CheckpointId| self.folder.is_own() || id.generation == self.owner.generation;
        retention::collect_while(&self.store, &self.owner.job, self.keep, &[], &own)?;
        Ok(())
    }

    /// Commits a checkpoint of which all shards are durable.
    fn commit(&self, id: CheckpointId, seals: &[ShardSeal]) -> Result<(), LocalError> {
        let job = &self.owner.job;
        let older = self.store.committed_ids(job)?.into_iter().rev();
        let parent = older.into_iter().find(|other| *other < id);
        let mut manifest = Manifest::from_seals(job, id, parent, seals)?;
        manifest.run = self.folder.record(&self.store, &self.owner)?;
        self.store.commit(&manifest)?;
        Ok(())
    }

    /// Waits for the index of another rank's shard and returns its seal: an index is written after the image is
    /// durable. Returns an error at `until`, once the rank has marked the save as void, once `abandoned` is set, after an
    /// interrupt, and for an invalid index.
    fn seal_of(&self, id: CheckpointId, rank: Rank, until: Instant) -> Result<ShardSeal, LocalError> {
        let path = self.store.index_path(&self.owner.job, id, rank)?;
        let mut void = None;
        let found = self.poll_until(until, || {
            let is_there = path.symlink_metadata().is_ok();
            void = self.marks.reason_of(id, rank).filter(|_| !is_there);
            is_there || void.is_some()
        })?;
        if let Some(reason) = void {
            let step = id.step;
            return Err(LocalError::VoidShard { step, rank, reason });
        }
        if !found && self.abandoned.load(Ordering::Relaxed) {
            let step = id.step;
            return Err(LocalError::Abandoned { step, rank, path });
        }
        if !found {
            let step = id.step;
            let within = self.commit_within;
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

    /// Waits until this checkpoint or a newer one is committed: the other ranks may have continued, and this one may be
    /// removed already. Returns `false` at the deadline or once `abandoned` is set, and an error once rank 0 has marked the
    /// checkpoint as void.
    pub(crate) fn wait_committed(&self, id: CheckpointId, until: Instant) -> Result<bool, LocalError> {
        let job = &self.owner.job;
        let mut failed = None;
        let there = self.poll_until(until, || {
            // A checkpoint that was committed although rank 0 reported a failure exists.
            let void = self.marks.reason_of(id, Rank(0));
            match self.store.committed_ids(job) {
                Ok(ids) if ids.last().is_some_and(|newest| *newest >= id) => return true,
                Ok(_) => {
                    let step = id.step;
                    failed = void.map(|reason| LocalError::VoidCommit { step, reason });
                }
                Err(problem) => failed = Some(problem.into()),
            }
            failed.is_some()
        })?;
        failed.map_or(Ok(there), Err)
    }

    /// Returns true if this checkpoint or a newer one is known to be committed.
    pub(crate) fn is_committed(&self, id: CheckpointId) -> bool {
        let committed = self.store.committed_ids(&self.owner.job);
        committed.is_ok_and(|ids| ids.last().is_some_and(|newest| *newest >= id))
    }

    /// Polls until `there` returns true; returns `false` at the deadline or once `abandoned` is set.
    fn poll_until(&self, until: Instant, mut there: impl FnMut() -> bool) -> Result<bool, CallInterrupted> {
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
