//! A rank without an agent: it writes its own images into a store, and rank 0 commits.
//!
//! Weaker than with an agent, and meant for one machine, notebooks and tests: what was sealed dies with the process, nobody
//! fences an older run off, and each restore reads from the store alone. What is committed is as good as any other
//! checkpoint (RG-1, RG-2).

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
use crate::slots::{Claim, Owner, Sealed, Slots, Way};
use crate::writer::{Destination, Writer};
use crate::{BackPressure, Counts, Notes, Part, RankEnv, RestoredInto, SaveOutcome, Saved};

/// How a rank without an agent keeps its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// Images in memory at a time, 1 to 3: each costs as much memory as the state.
    pub slots: u32,
    /// What a save does when all of them are taken.
    pub policy: BackPressure,
    /// How long rank 0 waits for the shards of the others.
    pub commit_within: Duration,
    /// Committed checkpoints to keep; 0 for all.
    pub keep: u32,
    /// The generation of this run. Every rank must have the same; `None` takes the one after the newest in the store.
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

/// Images that may wait for the writer at the end of a session: the slots of an arena, and the one in work.
const MAX_QUEUED: u32 = 4;

/// A rank that keeps its state in a store of its own choice.
#[derive(Debug)]
pub struct LocalRank {
    // Before the writer: a copy that was begun ends first.
    slots: Slots,
    to: Destination,
    slot_count: u32,
    policy: BackPressure,
    /// The newest step that was sealed.
    sealed: Option<Step>,
    writer: Writer,
    /// A wait ended without a commit: the end of the session waits for no other rank.
    gave_up: bool,
}

impl LocalRank {
    /// Opens the store in `dir` for the job, rank and world size that `env` names.
    pub fn open(dir: impl Into<PathBuf>, env: &RankEnv, options: &LocalOptions) -> Result<Self, LocalError> {
        let store = Store::open(dir)?;
        let generation = match options.generation {
            Some(generation) => generation,
            None => next_generation(&store, &env.job)?.max(env.generation),
        };
        let owner = Owner {
            job: env.job.clone(),
            generation,
            rank: env.rank,
            world_size: env.world_size,
        };
        let to = Destination {
            folder: Arc::new(FolderRun::open(&store, &owner)?),
            store,
            owner,
            commit_within: options.commit_within,
            keep: options.keep,
            abandoned: Arc::default(),
        };
        Ok(Self {
            slots: Slots::default(),
            writer: Writer::start(to.clone()).map_err(LocalError::Thread)?,
            to,
            slot_count: options.slots,
            policy: options.policy,
            sealed: None,
            gave_up: false,
        })
    }

    /// The rank and the ranks of its world.
    pub fn place(&self) -> (Rank, u32) {
        (self.to.owner.rank, self.to.owner.world_size)
    }

    /// The generation that this run saves under.
    pub fn generation(&self) -> Generation {
        self.to.owner.generation
    }

    /// Makes the arena for images of this size, with every page in place, so that the first save is as fast as the next.
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
        // The old one goes when its last image is written.
        self.slots.arena = None;
        let shape = demand.shape(self.slot_count);
        self.slots.arena = Some(Arc::new(Arena::create_shaped("rankguard-local", shape)?));
        Ok(())
    }

    /// Jobs that have a folder in the store.
    pub fn jobs(&self) -> Result<Vec<JobId>, LocalError> {
        Ok(self.to.store.jobs()?)
    }

    /// Committed checkpoints that no later attempt of the run supersedes, oldest first.
    pub fn committed(&self) -> Result<Vec<CheckpointId>, LocalError> {
        Ok(self.to.store.current_ids(&self.to.owner.job)?)
    }

    /// Fills the buffers from the newest checkpoint, or from that of `step`; `None` when there is none. A damaged one is
    /// passed over only in a world of one: ranks that choose for themselves would restore different steps.
    pub fn restore_into(
        &mut self,
        wanted: &mut [(TensorBox, &mut [u8])],
        step: Option<Step>,
    ) -> Result<Option<RestoredInto>, LocalError> {
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
            // Damage counts when a second read finds it, too.
            let restored = self.restore_one(id, wanted);
            let restored = match restored {
                Err(problem) if problem.is_damage() => self.restore_one(id, wanted),
                other => other,
            };
            match restored {
                Ok(restored) => {
                    self.to.folder.restored(id);
                    return Ok(Some(restored));
                }
                // Storage that cannot be read, or boxes that no checkpoint has, are no reason to lose steps.
                Err(problem) if self.to.owner.world_size > 1 || !problem.is_damage() => return Err(problem),
                Err(problem) => first_problem = first_problem.or(Some(problem)),
            }
        }
        first_problem.map_or(Ok(None), Err)
    }

    fn restore_one(&self, id: CheckpointId, wanted: &mut [(TensorBox, &mut [u8])]) -> Result<RestoredInto, LocalError> {
        let _lease = self.to.store.lease(&self.to.owner.job, id)?;
        let checkpoint = self.to.store.load(&self.to.owner.job, id)?;
        let same_world = checkpoint.manifest.world_size == self.to.owner.world_size;
        let reader = same_world.then_some(self.to.owner.rank);
        restore_boxes(&self.to.store, &checkpoint, wanted, reader)?.map_err(|problem| {
            let problem = Box::new(problem);
            LocalError::Restore { id, problem }
        })?;
        let (differing, names) = (checkpoint.differing(), checkpoint.names_without_schema());
        let states = checkpoint.indexes.into_iter().map(|index| (index.rank, index.state));
        Ok(RestoredInto {
            step: id.step,
            states: states.collect(),
            differing,
            names,
        })
    }

    /// What was saved and what was not.
    pub fn counts(&self) -> Counts {
        self.slots.counts
    }

    /// Copies the tensors into memory of its own; they may be changed when this returns. A thread writes and commits.
    pub fn checkpoint(
        &mut self,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
        notes: &Notes,
    ) -> Result<Saved, LocalError> {
        let started = Instant::now();
        self.refuse_standing(step)?;
        let sizes = tensors.iter().map(|(boxed, data)| (boxed, data.len() as u64));
        let Some(slot) = self.claim(demand(sizes, Some(state))?)? else {
            return Ok(skipped(started));
        };
        let owner = self.to.owner.clone();
        let way = Way::Whole(slot);
        match self.slots.fill(way, &owner, step, tensors, (state, notes), started)? {
            Some(sealed) => Ok(self.queue(sealed, started)),
            None => Ok(skipped(started)),
        }
    }

    /// Starts to copy beside the training, as [`crate::RankClient::begin`] does.
    pub fn begin(
        &mut self,
        step: Step,
        parts: Vec<Part>,
        state: Value,
        notes: Notes,
    ) -> Result<Option<Saved>, LocalError> {
        let started = Instant::now();
        self.refuse_standing(step)?;
        let sizes = parts
            .iter()
            .map(|part| (&part.boxed, (*part.data).as_ref().len() as u64));
        let Some(slot) = self.claim(demand(sizes, Some(&state))?)? else {
            return Ok(Some(skipped(started)));
        };
        let owner = self.to.owner.clone();
        let way = Way::Whole(slot);
        let begun = self.slots.begin(way, &owner, step, parts, (state, notes), started);
        begun.map(|()| None).map_err(LocalError::Thread)
    }

    /// Waits for what is left of the copy that was begun. `None` when none was.
    pub fn finish(&mut self) -> Result<Option<Saved>, LocalError> {
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

    /// Waits until everything sealed is durable and committed, and says what was not.
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
        let id = CheckpointId {
            step,
            generation: self.to.owner.generation,
        };
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

    /// Whether nothing is being copied, written, committed or cleared away by this rank.
    pub fn is_idle(&self) -> bool {
        !self.slots.is_copying() && self.writer.is_idle()
    }

    /// Images that could not be made durable since this was last asked, each with the reason; at most the newest 16.
    pub fn take_failures(&self) -> Vec<(Step, String)> {
        self.writer.take_failures()
    }

    /// How many images could not be made durable, in all.
    pub fn failed(&self) -> u64 {
        self.writer.failed()
    }

    /// The newest of those with its reason.
    pub fn last_failure(&self) -> Option<(Step, String)> {
        self.writer.last_failure()
    }

    /// Refuses a step that another program has committed in the folder.
    fn refuse_standing(&self, step: Step) -> Result<(), LocalError> {
        let Some(standing) = self.to.folder.standing(step) else {
            return Ok(());
        };
        let path = self.to.store.job_dir(&self.to.owner.job)?;
        Err(LocalError::StepExists { step, standing, path })
    }

    /// Ends the session: writes what is sealed and waits for its commit, but for no other rank once a wait has failed or was
    /// interrupted. An interrupt ends the wait for other ranks and is returned as an error. Gives what was not made durable.
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

    /// Leaves the session to the process that opened it. For a fork of that process: nothing is written, joined or unlocked.
    pub fn leave_to_parent(mut self) {
        self.slots.forget_copy();
        self.writer.forget_thread();
    }

    fn claim(&mut self, demand: ArenaDemand) -> Result<Option<Claim>, LocalError> {
        self.finish()?;
        self.take_arena(demand)?;
        let (writer, policy) = (&self.writer, self.policy);
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

    fn queue(&mut self, sealed: Sealed, since: Instant) -> Saved {
        let arena = self.slots.arena.clone().expect("it was filled");
        self.sealed = Some(sealed.step);
        self.gave_up = false;
        self.writer.push(arena, sealed.slot, sealed.step);
        Saved {
            stall: sealed.blocked.max(since.elapsed()),
            outcome: SaveOutcome::Sealed,
        }
    }
}

/// The generation after the newest that left anything in the store.
fn next_generation(store: &Store, job: &JobId) -> Result<Generation, LocalError> {
    let listing = store.manifests(job)?;
    let committed = listing.manifests.iter().map(|manifest| manifest.generation);
    let torn = listing.torn.iter().map(|id| id.generation);
    let unreadable = listing.problems.iter().filter_map(|problem| problem.checkpoint);
    let newest = committed.chain(torn).chain(unreadable.map(|id| id.generation)).max();
    Ok(Generation(newest.map_or(1, |newest| newest.0.saturating_add(1))))
}

/// What an image of these parts and this state needs of an arena; each part is checked against what it holds.
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
    // Larger than any memory, and refused as such.
    Ok(ArenaDemand::new(boxes.into_iter(), state).unwrap_or(ArenaDemand {
        image_bytes: u64::MAX,
        meta_bytes: 0,
    }))
}

fn skipped(started: Instant) -> Saved {
    Saved {
        stall: started.elapsed(),
        outcome: SaveOutcome::SkippedNoFreeSlot,
    }
}
