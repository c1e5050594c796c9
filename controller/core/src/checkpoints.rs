//! Which checkpoints of a job exist, and which are becoming one.

use std::collections::BTreeMap;

use rankguard_checkpoint_format::{CheckpointId, Manifest};
use rankguard_model::{CheckpointView, Generation, JobId, Rank, ShardSeal, Step, Timestamp};
use serde::Serialize;

/// Attempts that are remembered while incomplete; the oldest is given up first.
const ATTEMPTS_MAX: usize = 8;

/// The checkpoints of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Checkpoints {
    /// Committed, oldest first.
    pub committed: Vec<CheckpointView>,
    /// Shards that are durable, of checkpoints that are not committed.
    attempts: BTreeMap<(Generation, Step), Attempt>,
    /// The manifest that is being written.
    pub committing: Option<Manifest>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Attempt {
    shards: BTreeMap<Rank, ShardSeal>,
    stall_ms: BTreeMap<Rank, f64>,
}

impl Checkpoints {
    /// The newest committed checkpoint.
    pub fn newest(&self) -> Option<&CheckpointView> {
        self.committed.last()
    }

    /// A rank sealed its shard.
    pub fn sealed(&mut self, generation: Generation, step: Step, rank: Rank, stall_ms: f64) {
        self.attempt(generation, step).stall_ms.insert(rank, stall_ms);
    }

    /// A shard became durable. Gives the manifest when it was the last one missing and nothing else is being written.
    pub fn durable(&mut self, job: &JobId, generation: Generation, seal: ShardSeal) -> Option<Manifest> {
        let step = seal.step;
        if self.newest().is_some_and(|newest| step <= newest.step) {
            return None;
        }
        self.attempt(generation, step).shards.insert(seal.rank, seal);
        self.complete(job, generation)
    }

    /// The newest whole attempt of a generation as a manifest, unless one is being written already.
    pub fn complete(&mut self, job: &JobId, generation: Generation) -> Option<Manifest> {
        if self.committing.is_some() {
            return None;
        }
        let ((_, step), attempt) = self
            .attempts
            .iter()
            .rev()
            .find(|((of, _), attempt)| *of == generation && attempt.is_whole())?;
        let id = CheckpointId {
            step: *step,
            generation,
        };
        let parent = self.newest().map(|newest| CheckpointId {
            step: newest.step,
            generation: newest.generation,
        });
        let seals: Vec<ShardSeal> = attempt.shards.values().cloned().collect();
        let manifest = Manifest::from_seals(job, id, parent, &seals).ok()?;
        self.committing = Some(manifest.clone());
        Some(manifest)
    }

    /// The manifest is written: the checkpoint exists. Older attempts have become pointless.
    pub fn committed(&mut self, at: Timestamp, generation: Generation, step: Step) {
        let attempt = self.attempts.get(&(generation, step)).cloned().unwrap_or_default();
        self.attempts.retain(|(_, of), _| *of > step);
        self.committing = None;
        if self
            .newest()
            .is_some_and(|newest| (newest.step, newest.generation) >= (step, generation))
        {
            return;
        }
        self.committed.push(CheckpointView {
            step,
            generation,
            world_size: u32::try_from(attempt.shards.len()).unwrap_or(u32::MAX),
            bytes: attempt.shards.values().map(|seal| seal.bytes).sum(),
            committed_at: at,
            stall_ms: attempt.stall_ms.into_iter().collect(),
        });
    }

    /// The manifest could not be written: the attempt is void.
    pub fn refused(&mut self, generation: Generation, step: Step) {
        self.attempts.remove(&(generation, step));
        self.committing = None;
    }

    /// A shard could not be kept: the attempt is void.
    pub fn failed(&mut self, generation: Generation, step: Step) {
        self.attempts.remove(&(generation, step));
    }

    /// A committed checkpoint turned out to be unreadable: nobody is sent to it again. Says whether it was among them.
    pub fn distrust(&mut self, generation: Generation, step: Step) -> bool {
        let before = self.committed.len();
        self.committed
            .retain(|known| (known.generation, known.step) != (generation, step));
        self.committed.len() < before
    }

    /// Older generations may commit nothing more (RG-3), except a manifest that is being written already.
    pub fn fence(&mut self, generation: Generation) {
        let committing = self
            .committing
            .as_ref()
            .map(|manifest| (manifest.generation, manifest.step));
        self.attempts
            .retain(|key, _| key.0 >= generation || Some(*key) == committing);
    }

    fn attempt(&mut self, generation: Generation, step: Step) -> &mut Attempt {
        if self.attempts.len() >= ATTEMPTS_MAX && !self.attempts.contains_key(&(generation, step)) {
            self.attempts.pop_first();
        }
        self.attempts.entry((generation, step)).or_default()
    }
}

impl Attempt {
    fn is_whole(&self) -> bool {
        self.shards
            .values()
            .next()
            .is_some_and(|seal| seal.world_size as usize == self.shards.len())
    }
}
