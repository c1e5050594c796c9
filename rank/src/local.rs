//! Rank without an agent: it writes its own images into a store, and rank 0 commits.
//!
//! Weaker than with an agent, and meant for one machine, notebooks and tests: sealed images end with the process, an
//! older run is not fenced, and each restore reads from the store alone. A committed checkpoint has the same
//! guarantees as any other (RG-1, RG-2).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rankguard_checkpoint::Store;
use rankguard_checkpoint::arena::Arena;
use rankguard_checkpoint::format::{CheckpointId, TensorBox};
use rankguard_model::{Generation, JobId, Rank, Step};
use serde_json::Value;

use crate::demand::ArenaDemand;
use crate::folder_run::FolderRun;
use crate::interruptible::restore_boxes;
use crate::local_error::LocalError;
use crate::slots::{ArenaSlots, ImageOwner, SealedSlot, SlotClaim, SlotWrite};
use crate::void_marks::VoidMarks;
use crate::writer::{ImageDestination, ImageWriter};
use crate::{BackPressure, RankEnv, RestoreSummary, SaveCounts, SaveNotes, SaveOutcome, SaveReport, TensorPart};

/// Options of a rank without an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// Slots of the arena, 1 to 3: each takes as much memory as the state.
    pub slots: u32,
    /// Behaviour of a save when all slots are in use.
    pub policy: BackPressure,
    /// Longest wait of rank 0 for the shards of the other ranks.
    pub commit_within: Duration,
    /// Number of committed checkpoints to retain; 0 for all.
    pub keep: u32,
    /// Generation of this run. Every rank must have the same; `None` selects the one after the newest in the store.
    pub generation: Option<Generation>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            slots: 1,
            policy: BackPressure::Wait(Duration::from_secs(600)),
            commit_within: Duration::from_secs(600),
            keep: 0,
            generation: None,
        }
    }
}

/// Maximum images that may wait for the writer at the end of a session: the slots of an arena, and the one being
/// written.
const MAX_QUEUED: u32 = 4;

/// Rank that saves its state to a store without an agent.
#[derive(Debug)]
pub struct LocalRank {
    // Declared before the writer, so that a running copy ends first.
    slots: ArenaSlots,
    to: ImageDestination,
    slot_count: u32,
    policy: BackPressure,
    /// Newest sealed step.
    sealed: Option<Step>,
    writer: ImageWriter,
    /// True if a wait ended without a commit: the end of the session then waits for no other rank.
    gave_up: bool,
}

impl LocalRank {
    /// Opens the store in `dir` for the job, rank and world size of `env`.
    pub fn open(dir: impl Into<PathBuf>, env: &RankEnv, options: &LocalOptions) -> Result<Self, LocalError> {
        let store = Store::open(dir)?;
        let generation = match options.generation {
            Some(generation) => generation,
            None => next_generation(&store, &env.job)?.max(env.generation),
        };
        let owner = ImageOwner {
            job: env.job.clone(),
            generation,
            rank: env.rank,
            world_size: env.world_size,
        };
        let to = ImageDestination {
            folder: Arc::new(FolderRun::open(&store, &owner)?),
            marks: Arc::new(VoidMarks::open(&store, &owner.job, owner.rank)),
            store,
            owner,
            commit_within: options.commit_within,
            keep: options.keep,
            abandoned: Arc::default(),
        };
        Ok(Self {
            slots: ArenaSlots::default(),
            writer: ImageWriter::start(to.clone()).map_err(LocalError::Thread)?,
            to,
            slot_count: options.slots,
            policy: options.policy,
            sealed: None,
            gave_up: false,
        })
    }

    /// Returns the rank and the number of ranks of its world.
    pub fn place(&self) -> (Rank, u32) {
        (self.to.owner.rank, self.to.owner.world_size)
    }

    /// Returns the generation that this run saves under.
    pub fn generation(&self) -> Generation {
        self.to.owner.generation
    }

    /// Creates the arena for images of this size, with every page in place, so that the first save is as fast as the
    /// next.
    pub fn arm(&mut self, image_bytes: u64) -> Result<(), LocalError> {
        let meta_bytes = 0;
        self.take_arena(ArenaDemand {
            image_bytes,
            meta_bytes,
        })
    }

    fn take_arena(&mut self, demand: ArenaDemand) -> Result<(), LocalError> {
        let fits = |arena: &Arc<Arena>| demand.fits(arena.geometry());
        if self.slots.arena.as_ref().is_some_and(fits) {
            return Ok(());
        }
        // The old arena is freed when its last image is written.
        self.slots.arena = None;
        let shape = demand.shape(self.slot_count);
        self.slots.arena = Some(Arc::new(Arena::create_shaped("rankguard-local", shape)?));
        Ok(())
    }

    /// Returns the jobs that have a folder in the store.
    pub fn jobs(&self) -> Result<Vec<JobId>, LocalError> {
        Ok(self.to.store.jobs()?)
    }

    /// Returns the committed checkpoints that no later attempt of the run supersedes, oldest first.
    pub fn committed(&self) -> Result<Vec<CheckpointId>, LocalError> {
        Ok(self.to.store.current_ids(&self.to.owner.job)?)
    }

    /// Fills the buffers from the newest checkpoint, or from that of `step`; `None` if there is none. A damaged
    /// checkpoint is skipped only in a world of one: ranks that choose independently would restore different steps.
    pub fn restore_into(
        &mut self,
        wanted: &mut [(TensorBox, &mut [u8])],
        step: Option<Step>,
    ) -> Result<Option<RestoreSummary>, LocalError> {
        let sizes = wanted.iter().map(|(boxed, buffer)| (boxed, buffer.len() as u64));
        let demand = demand(sizes, None)?;
        if !wanted.is_empty() {
            self.take_arena(demand)?;
        }
        let committed = self.committed()?;
        let asked = |id: &&CheckpointId| step.is_none_or(|step| id.step == step);
        let candidates: Vec<_> = committed.iter().rev().filter(asked).copied().collect();
        if let (Some(step), true) = (step, candidates.is_empty()) {
            let path = self.to.store.job_dir(&self.to.owner.job)?;
            return Err(LocalError::NoSuchStep { step, path });
        }
        let mut first_problem = None;
        for id in candidates {
            // Damage counts if a second read finds it, too.
            let restored = self.restore_one(id, wanted);
            let restored = match restored {
                Err(problem) if problem.is_damage() => self.restore_one(id, wanted),
                other => other,
            };
            match restored.map_err(|problem| self.with_repair(id, problem)) {
                Ok(restored) => {
                    self.to.folder.restored(id);
                    return Ok(Some(restored));
                }
                // Damage that one command repairs must not lose steps.
                Err(problem @ LocalError::Repairable { .. }) => return Err(problem),
                // Unreadable storage, or boxes that no checkpoint has, must not lose steps.
                Err(problem) if self.to.owner.world_size > 1 || !problem.is_damage() => return Err(problem),
                Err(problem) => first_problem = first_problem.or(Some(problem)),
            }
        }
        first_problem.map_or(Ok(None), Err)
    }

    /// Adds the command that repairs damage, if the checkpoint has parity.
    fn with_repair(&self, id: CheckpointId, problem: LocalError) -> LocalError {
        let command = self.to.store.parity_repair(&self.to.owner.job, id);
        match command.filter(|_| problem.is_damage()) {
            Some(command) => {
                let problem = Box::new(problem);
                LocalError::Repairable { problem, command }
            }
            None => problem,
        }
    }

    fn restore_one(
        &self,
        id: CheckpointId,
        wanted: &mut [(TensorBox, &mut [u8])],
    ) -> Result<RestoreSummary, LocalError> {
        let _lease = self.to.store.lease(&self.to.owner.job, id)?;
        let checkpoint = self.to.store.load(&self.to.owner.job, id)?;
        let same_world = checkpoint.manifest.world_size == self.to.owner.world_size;
        let reader = same_world.then_some(self.to.owner.rank);
        restore_boxes(&self.to.store, &checkpoint, wanted, reader)?.map_err(|problem| {
            let problem = Box::new(problem);
            LocalError::Restore { id, problem }
        })?;
        let differing = checkpoint.differing();
        let names = checkpoint.names_without_schema();
        let states = checkpoint.indexes.into_iter().map(|index| (index.rank, index.state));
        Ok(RestoreSummary {
            step: id.step,
            states: states.collect(),
            differing,
            names,
        })
    }

    /// Returns the counts of saves by outcome.
    pub fn counts(&self) -> SaveCounts {
        self.slots.counts
    }

    /// Copies the tensors into separate memory; they may be changed when this returns. A thread writes and commits.
    pub fn checkpoint(
        &mut self,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
        notes: &SaveNotes,
    ) -> Result<SaveReport, LocalError> {
        let started = Instant::now();
        self.refuse_unadopted(step)?;
        let sizes = tensors.iter().map(|(boxed, data)| (boxed, data.len() as u64));
        let Some(slot) = self.claim(demand(sizes, Some(state))?)? else {
            return Ok(skipped(started));
        };
        let owner = self.to.owner.clone();
        let way = SlotWrite::Whole(slot);
        match self.slots.fill(way, &owner, step, tensors, (state, notes), started)? {
            Some(sealed) => Ok(self.queue(sealed, started)),
            None => Ok(skipped(started)),
        }
    }

    /// Starts to copy while the training continues, as [`crate::RankClient::begin`] does.
    pub fn begin(
        &mut self,
        step: Step,
        parts: Vec<TensorPart>,
        state: Value,
        notes: SaveNotes,
    ) -> Result<Option<SaveReport>, LocalError> {
        let started = Instant::now();
        self.refuse_unadopted(step)?;
        let sizes = parts
            .iter()
            .map(|part| (&part.boxed, (*part.data).as_ref().len() as u64));
        let Some(slot) = self.claim(demand(sizes, Some(&state))?)? else {
            return Ok(Some(skipped(started)));
        };
        let owner = self.to.owner.clone();
        let way = SlotWrite::Whole(slot);
        let begun = self.slots.begin(way, &owner, step, parts, (state, notes), started);
        begun.map(|()| None).map_err(LocalError::Thread)
    }

    /// Waits for the rest of the copy that was begun. Returns `None` if none was begun.
    pub fn finish(&mut self) -> Result<Option<SaveReport>, LocalError> {
        let started = Instant::now();
        let waited = self.slots.wait_for_copy();
        self.gave_up |= waited.is_err();
        waited?;
        let Some((_, sealed)) = self.slots.finish() else {
            return Ok(None);
        };
        Ok(Some(match sealed? {
            Some(sealed) => self.queue(sealed, Instant::now()),
            None => skipped(started),
        }))
    }

    /// Waits until everything sealed is durable and committed; returns the newest checkpoint, or an error for the
    /// first failure.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<CheckpointId>, LocalError> {
        let waited = self.wait_for_commit(limit);
        self.gave_up = waited.is_err();
        waited
    }

    fn wait_for_commit(&mut self, limit: Duration) -> Result<Option<CheckpointId>, LocalError> {
        let until = Instant::now() + limit;
        self.finish()?;
        if !self.writer.drain(limit)? {
            return Err(LocalError::Deadline { limit });
        }
        if let Some((step, reason)) = self.take_failures().into_iter().next() {
            return Err(LocalError::NotDurable { step, reason });
        }
        let Some(step) = self.sealed else { return Ok(None) };
        let id = self.to.id_of(step);
        // The failure of this step may have been taken from the list before, as a warning of the save.
        if let Some(reason) = self.failure_of(step)
            && !self.to.is_committed(id)
        {
            return Err(LocalError::NotDurable { step, reason });
        }
        if !self.to.wait_committed(id, until)? {
            let path = self.to.store.manifest_path(&self.to.owner.job, id)?;
            return Err(LocalError::NotCommitted {
                step,
                within: limit,
                path,
            });
        }
        Ok(Some(id))
    }

    /// Returns true if this rank is not copying, writing, committing or removing anything.
    pub fn is_idle(&self) -> bool {
        !self.slots.is_copying() && self.writer.is_idle()
    }

    /// Returns the images that could not be made durable since the last call, each with the reason; at most the newest
    /// 16.
    pub fn take_failures(&self) -> Vec<(Step, String)> {
        self.writer.take_failures()
    }

    /// Returns the total number of images that could not be made durable.
    pub fn failed(&self) -> u64 {
        self.writer.failed()
    }

    /// The newest of those with its reason.
    pub fn last_failure(&self) -> Option<(Step, String)> {
        self.writer.last_failure()
    }

    /// Returns the reason of the newest failure if it is of this step.
    fn failure_of(&self, step: Step) -> Option<String> {
        let (failed, reason) = self.writer.last_failure()?;
        (failed == step).then_some(reason)
    }

    /// Refuses to save into a folder with checkpoints that this program has not restored from.
    fn refuse_unadopted(&self, step: Step) -> Result<(), LocalError> {
        let Some(newest) = self.to.folder.unadopted() else {
            return Ok(());
        };
        let path = self.to.store.job_dir(&self.to.owner.job)?;
        Err(LocalError::NotRestored { step, newest, path })
    }

    /// Ends the session: writes sealed images and waits for their commit, but for no other rank once a wait has failed
    /// or was interrupted. An interrupt ends the wait for other ranks and is returned as an error. Returns the images
    /// that were not made durable.
    pub fn close(mut self) -> Result<Vec<(Step, String)>, LocalError> {
        let finished = self.finish();
        let drained = if self.gave_up || finished.is_err() {
            Ok(false)
        } else {
            self.writer.drain(self.to.commit_within.saturating_mul(MAX_QUEUED))
        };
        self.to.abandoned.store(true, Ordering::Relaxed);
        self.writer.stop();
        let failures = self.take_failures();
        drained?;
        finished.map(|_| failures)
    }

    /// Leaves the session to the process that opened it. For a fork of that process: nothing is written, joined or
    /// unlocked.
    pub fn leave_to_parent(mut self) {
        self.slots.forget_copy();
        self.writer.forget_thread();
    }

    fn claim(&mut self, demand: ArenaDemand) -> Result<Option<SlotClaim>, LocalError> {
        self.finish()?;
        self.take_arena(demand)?;
        let writer = &self.writer;
        let policy = self.policy;
        let claimed = self.slots.claim(policy, |left| {
            if policy == BackPressure::ReplaceOldest {
                writer.give_up_oldest();
            } else {
                writer.wait_for_change(left);
            }
        });
        self.gave_up |= claimed.is_err();
        Ok(claimed?)
    }

    fn queue(&mut self, sealed: SealedSlot, since: Instant) -> SaveReport {
        let arena = self.slots.arena.clone().expect("it was filled");
        self.sealed = Some(sealed.step);
        self.gave_up = false;
        self.writer.push(arena, sealed.slot, sealed.step);
        SaveReport {
            stall: sealed.blocked.max(since.elapsed()),
            outcome: SaveOutcome::Sealed,
        }
    }
}

/// Returns the generation after the newest one that left files in the store.
fn next_generation(store: &Store, job: &JobId) -> Result<Generation, LocalError> {
    let listing = store.manifests(job)?;
    let committed = listing.manifests.iter().map(|manifest| manifest.generation);
    let torn = listing.torn.iter().map(|id| id.generation);
    let unreadable = listing.problems.iter().filter_map(|problem| problem.checkpoint);
    let newest = committed.chain(torn).chain(unreadable.map(|id| id.generation)).max();
    Ok(Generation(newest.map_or(1, |newest| newest.0.saturating_add(1))))
}

/// Returns the arena demand of an image of these parts and this state; checks the size of each part's buffer.
fn demand<'a>(
    parts: impl Iterator<Item = (&'a TensorBox, u64)>,
    state: Option<&Value>,
) -> Result<ArenaDemand, LocalError> {
    let mut boxes = Vec::new();
    for (boxed, has) in parts {
        boxed.check()?;
        let needs = boxed.bytes().unwrap_or(u64::MAX);
        if has != needs {
            let name = boxed.name.clone();
            return Err(LocalError::Buffer { name, has, needs });
        }
        boxes.push(boxed);
    }
    // Larger than any memory, so that the allocation is refused.
    Ok(ArenaDemand::new(boxes.into_iter(), state).unwrap_or(ArenaDemand {
        image_bytes: u64::MAX,
        meta_bytes: 0,
    }))
}

fn skipped(started: Instant) -> SaveReport {
    SaveReport {
        stall: started.elapsed(),
        outcome: SaveOutcome::SkippedNoFreeSlot,
    }
}
