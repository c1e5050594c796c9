//! Which checkpoints of a job exist, and which are becoming one.

use std::collections::BTreeMap;

use rankguard_checkpoint_format::{CheckpointId, Manifest};
use rankguard_checkpoint_schedule::agreement::Tally;
use rankguard_checkpoint_schedule::retention::{Kept, Retention, stay};
use rankguard_model::{CheckpointView, CopyTier, Generation, JobId, Rank, ShardSeal, Step, Timestamp};
use serde::Serialize;

/// Attempts whose stalls are remembered; the oldest is forgotten first.
const STALLS_MAX: usize = 8;

/// The checkpoints of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Checkpoints {
    /// Committed, oldest first.
    pub committed: Vec<CheckpointView>,
    /// Shards that are durable, of checkpoints that are not committed.
    attempts: Tally<ShardSeal>,
    /// How long each rank waited, milliseconds, of checkpoints that are not committed.
    stall_ms: BTreeMap<(Generation, Step), BTreeMap<Rank, f64>>,
    /// The manifest that is being written.
    pub committing: Option<Manifest>,
    /// Shards that were lost to a checkpoint, and why the newest was.
    pub void_shards: u64,
    /// Why the newest of them was lost.
    pub void_reason: Option<String>,
    /// Images in the memory of another node, of checkpoints that are not committed.
    copied: BTreeMap<(Generation, Step), u32>,
    /// Copies that could not be made.
    pub copies_failed: u64,
    /// Why the newest of them could not.
    pub copy_reason: Option<String>,
}

impl Checkpoints {
    /// The newest committed checkpoint.
    pub fn newest(&self) -> Option<&CheckpointView> {
        self.committed.last()
    }

    /// A rank sealed its shard.
    pub fn sealed(&mut self, generation: Generation, step: Step, rank: Rank, stall_ms: f64) {
        let key = (generation, step);
        if self.stall_ms.len() >= STALLS_MAX && !self.stall_ms.contains_key(&key) {
            self.stall_ms.pop_first();
        }
        self.stall_ms.entry(key).or_default().insert(rank, stall_ms);
    }

    /// A shard became durable. Gives the manifest when it was the last one missing and nothing else is being written.
    pub fn durable(&mut self, job: &JobId, generation: Generation, seal: ShardSeal) -> Option<Manifest> {
        let step = seal.step;
        if self.newest().is_some_and(|newest| step <= newest.step) {
            return None;
        }
        self.attempts.image(generation, step, seal.rank, seal.world_size, seal);
        self.complete(job, generation)
    }

    /// The newest whole attempt of a generation as a manifest, unless one is being written already.
    pub fn complete(&mut self, job: &JobId, generation: Generation) -> Option<Manifest> {
        if self.committing.is_some() {
            return None;
        }
        let (step, shards) = self.attempts.whole(generation)?;
        let seals: Vec<ShardSeal> = shards.values().cloned().collect();
        let id = CheckpointId { step, generation };
        let parent = self.newest().map(|newest| CheckpointId {
            step: newest.step,
            generation: newest.generation,
        });
        let manifest = Manifest::from_seals(job, id, parent, &seals).ok()?;
        self.committing = Some(manifest.clone());
        Some(manifest)
    }

    /// The manifest is written: the checkpoint exists. Older attempts have become pointless.
    pub fn committed(&mut self, at: Timestamp, generation: Generation, step: Step) {
        let shards = self.attempts.images(generation, step).cloned().unwrap_or_default();
        let stall_ms = self.stall_ms.remove(&(generation, step)).unwrap_or_default();
        self.attempts.committed(step);
        self.stall_ms.retain(|(_, of), _| *of > step);
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
            world_size: u32::try_from(shards.len()).unwrap_or(u32::MAX),
            bytes: shards.values().map(|seal| seal.bytes).sum(),
            committed_at: at,
            stall_ms: stall_ms.into_iter().collect(),
            copied: self.copied.remove(&(generation, step)).unwrap_or_default(),
            mirrored_at: None,
        });
        self.copied.retain(|(_, of), _| *of > step);
    }

    /// A copy was made, of a rank's image in another node's memory or of all of a checkpoint in the object store.
    pub fn copied(&mut self, at: Timestamp, generation: Generation, step: Step, tier: CopyTier) {
        let known = self
            .committed
            .iter_mut()
            .find(|view| (view.generation, view.step) == (generation, step));
        match (known, tier) {
            (Some(view), CopyTier::Peer) => view.copied = view.copied.saturating_add(1),
            (Some(view), CopyTier::Mirror) => view.mirrored_at = Some(at),
            // Memory is faster than the disk that a commit waits for.
            (None, CopyTier::Peer) => {
                let key = (generation, step);
                if self.copied.len() >= STALLS_MAX && !self.copied.contains_key(&key) {
                    self.copied.pop_first();
                }
                *self.copied.entry(key).or_default() += 1;
            }
            // Retention was faster than the way to the store.
            (None, CopyTier::Mirror) => {}
        }
    }

    /// A copy could not be made. The checkpoint is none the worse for it.
    pub fn not_copied(&mut self, step: Step, to: &str, reason: &str) {
        self.copies_failed += 1;
        self.copy_reason = Some(format!("step {step} to {to}: {reason}"));
    }

    /// The manifest could not be written: the attempt is void.
    pub fn refused(&mut self, generation: Generation, step: Step) {
        self.attempts.void(generation, step);
        self.committing = None;
    }

    /// A shard could not be kept: the attempt is void.
    pub fn failed(&mut self, generation: Generation, step: Step, reason: &str) {
        self.void_shards += 1;
        self.void_reason = Some(format!("step {step}: {reason}"));
        self.attempts.void(generation, step);
    }

    /// What stays of the committed ones and of one that may be about to be, by the rules of the job.
    pub fn stay(
        &self,
        rules: &Retention,
        next: Option<Kept<CheckpointId>>,
        metric: impl Fn(Generation, Step) -> BTreeMap<String, f64>,
    ) -> Vec<CheckpointId> {
        let known = self.committed.iter().map(|view| Kept {
            id: CheckpointId {
                step: view.step,
                generation: view.generation,
            },
            step: view.step,
            at: view.committed_at,
            metrics: metric(view.generation, view.step),
            needs: Vec::new(),
            leased: false,
        });
        let all: Vec<Kept<CheckpointId>> = known.chain(next).collect();
        stay(rules, &all).into_keys().collect()
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
        self.attempts.fence(generation, committing);
        self.stall_ms
            .retain(|key, _| key.0 >= generation || Some(*key) == committing);
        self.copied
            .retain(|key, _| key.0 >= generation || Some(*key) == committing);
    }
}
