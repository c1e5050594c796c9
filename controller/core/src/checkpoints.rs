//! Checkpoints of a job: the committed ones, and the attempts in progress.

mod saves;
mod void_attempts;

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint_format::{CheckpointId, Manifest};
use rankguard_checkpoint_schedule::agreement::AttemptTracker;
use rankguard_checkpoint_schedule::pairs;
use rankguard_checkpoint_schedule::retention::{RetentionCandidate, RetentionPolicy, retained_checkpoints};
use rankguard_model::{
    CheckpointCounts, CheckpointView, CopyTier, Generation, JobId, Rank, RunId, ShardSeal, Step, StoreClaim, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::limits::{COMMITTED_MAX, STALLS_SHOWN};

pub use void_attempts::OpenAttempt;
use void_attempts::passed_reason;

use crate::suspicion::CheckpointSuspicions;

/// Struck-off checkpoints that are recorded; those of the lowest steps are dropped first.
const STRUCK_OFF_MAX: usize = 64;

/// Attempts with recorded stalls; the oldest is dropped first.
const STALLS_MAX: usize = 8;

/// Attempts at checkpoints that are never committed: void ones, and those of generations before the one that trained last,
/// which are completed before its ranks start or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadAttempts {
    before: Generation,
    void: BTreeSet<(Generation, Step)>,
    /// Attempts with a manifest, or of which the manifest is being written.
    committed: BTreeSet<(Generation, Step)>,
}

impl DeadAttempts {
    /// Adds all attempts of generations before this one.
    pub(crate) fn and_before(self, generation: Generation) -> Self {
        Self {
            before: self.before.max(generation),
            ..self
        }
    }

    /// Returns true if this attempt is one of them.
    pub fn has(&self, generation: Generation, step: Step) -> bool {
        let attempt = (generation, step);
        !self.committed.contains(&attempt) && (generation < self.before || self.void.contains(&attempt))
    }
}

/// Checkpoints of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobCheckpoints {
    /// Committed checkpoints, oldest first.
    pub committed: Vec<CheckpointView>,
    /// Durable shards of checkpoints that are not committed.
    attempts: AttemptTracker<ShardSeal>,
    /// Stall of each rank, milliseconds, for checkpoints that are not committed.
    #[serde(with = "pairs")]
    stall_ms: BTreeMap<(Generation, Step), BTreeMap<Rank, f64>>,
    /// Manifest that is being written.
    pub committing: Option<Manifest>,
    /// Shards lost to a checkpoint.
    pub void_shards: u64,
    /// Cause of the newest loss.
    pub void_reason: Option<String>,
    /// Counts of attempts by outcome.
    #[serde(default)]
    pub counts: CheckpointCounts,
    /// Attempts that were counted as void although no failure was reported: a rank went on without its shard, or they gave
    /// way to later ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    passed: BTreeSet<(Generation, Step)>,
    /// Time of the first seal of attempts without a commit (since rules 9).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "pairs")]
    sealed_at: BTreeMap<(Generation, Step), Timestamp>,
    /// Time of the first durable shard of the newest attempts (since rules 9).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "pairs")]
    saved_at: BTreeMap<(Generation, Step), Timestamp>,
    /// Copies and parities in the memory of other nodes, for checkpoints that are not committed.
    #[serde(with = "pairs")]
    early: BTreeMap<(Generation, Step), UncommittedCopies>,
    /// Generation of the ranks that were started last.
    trained: Generation,
    /// Copies that could not be made.
    pub copies_failed: u64,
    /// Cause of the newest failure to copy.
    pub copy_reason: Option<String>,
    /// Tensors of the newest checkpoint with other values on each rank, the first few names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_rank_tensors: Vec<String>,
    /// Tensors of committed checkpoints for which only the same number of ranks can restore them, the first few names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "pairs")]
    same_size: BTreeMap<CheckpointId, Vec<String>>,
    /// Run id for manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    /// Checkpoints of earlier attempts of the run, of which this job knows no metrics.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    inherited: BTreeSet<CheckpointId>,
    /// Reports of nodes against committed checkpoints.
    #[serde(default, skip_serializing_if = "CheckpointSuspicions::is_empty")]
    pub suspicions: CheckpointSuspicions,
    /// First generation of this attempt of the run; 0 without a claim, and in older journals.
    #[serde(default, skip_serializing_if = "is_zero")]
    first: Generation,
    /// Damaged checkpoints that were removed from the list, and that the store may still have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    struck_off: BTreeSet<CheckpointId>,
}

fn is_zero(generation: &Generation) -> bool {
    *generation == Generation(0)
}

/// Images of an uncommitted checkpoint that other nodes hold, as copies or in a parity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct UncommittedCopies {
    copied: u32,
    in_parity: u32,
}

impl JobCheckpoints {
    /// Takes over the run and the committed checkpoints of a claimed folder. With `keeps_inherited`, those without a known
    /// metric are kept if the best are to be kept.
    pub fn claimed(&mut self, claim: &StoreClaim, keeps_inherited: bool) {
        self.run = Some(claim.run.clone());
        self.first = claim.first;
        self.committed.clone_from(&claim.checkpoints);
        if keeps_inherited {
            self.inherited = claim.checkpoints.iter().map(id_of).collect();
        }
    }

    /// Returns the newest committed checkpoint that the job may start from.
    pub fn newest(&self) -> Option<&CheckpointView> {
        let mut all = self.committed.iter().rev();
        all.find(|view| !self.suspicions.is_passed_over(id_of(view)))
    }

    /// Records the tensors for which only the same number of ranks can restore a committed checkpoint; none if any number
    /// can.
    pub(crate) fn note_same_size(&mut self, checkpoint: CheckpointId, tensors: &[String]) {
        let committed: BTreeSet<CheckpointId> = self.committed.iter().map(id_of).collect();
        self.same_size.retain(|known, _| committed.contains(known));
        if !tensors.is_empty() && committed.contains(&checkpoint) {
            self.same_size.insert(checkpoint, tensors.to_vec());
        }
    }

    /// Returns the checkpoint that the job starts from and its tensors, if only the same number of ranks can restore it.
    pub(crate) fn same_size_start(&self) -> Option<(&CheckpointView, &[String])> {
        let newest = self.newest()?;
        let tensors = self.same_size.get(&id_of(newest))?;
        Some((newest, tensors))
    }

    /// Returns the steps of the committed checkpoints that the job may start from, newest first.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        let all = self.committed.iter().rev();
        all.filter(|view| !self.suspicions.is_passed_over(id_of(view)))
            .map(|view| view.step)
    }

    /// Passes over the newest checkpoint because it was unreadable for the longest allowed wait; the checkpoint itself
    /// is retained. Returns its step and the step of the one before; `None` if there is no other.
    pub fn pass_over_newest(&mut self) -> Option<(Step, Step)> {
        let newest = id_of(self.newest()?);
        let before = self.committed.iter().rev().map(id_of);
        let mut before = before.filter(|id| *id != newest && !self.suspicions.is_passed_over(*id));
        let next = before.next()?;
        self.suspicions.pass_over(newest);
        Some((newest.step, next.step))
    }

    /// Records a sealed shard.
    pub fn sealed(&mut self, generation: Generation, step: Step, rank: Rank, stall_ms: f64) {
        let key = (generation, step);
        if self.stall_ms.len() >= STALLS_MAX && !self.stall_ms.contains_key(&key) {
            self.stall_ms.pop_first();
        }
        self.stall_ms.entry(key).or_default().insert(rank, stall_ms);
    }

    /// Returns the sealed and uncommitted steps of a generation of which a rank has sealed and stored nothing.
    pub(crate) fn steps_without(&self, generation: Generation, rank: Rank) -> Vec<Step> {
        let sealed = self.stall_ms.iter();
        let of_generation = sealed.filter(|((of, _), ranks)| *of == generation && !ranks.contains_key(&rank));
        let steps = of_generation.map(|((_, step), _)| *step);
        let is_stored = |step: Step| {
            let images = self.attempts.images(generation, step);
            images.is_some_and(|images| images.contains_key(&rank)) || self.has(generation, step)
        };
        steps.filter(|step| !is_stored(*step)).collect()
    }

    /// Returns the complete attempts that are not committed yet.
    pub(crate) fn complete_attempts(&self) -> impl Iterator<Item = CheckpointId> {
        let all = self.attempts.complete_attempts();
        all.map(|(generation, step)| CheckpointId { step, generation })
    }

    /// Records a durable shard. Returns the manifest if the shard completes a checkpoint and no manifest is being
    /// written. Attempts at steps that the job's retention rules name are retained for longer.
    pub fn durable(
        &mut self,
        job: &JobId,
        generation: Generation,
        seal: ShardSeal,
        rules: &RetentionPolicy,
    ) -> Option<Manifest> {
        self.record_shard(generation, seal, rules);
        self.complete(job, generation)
    }

    /// Records a shard in the store of the generation that trained last, which its ranks did not report.
    pub fn record_late_shard(&mut self, seal: ShardSeal, rules: &RetentionPolicy) {
        self.record_shard(self.trained, seal, rules);
    }

    /// Retains the newest complete attempt until it is committed, however many incomplete ones follow.
    pub(crate) fn retain_complete_attempts(&mut self) {
        self.attempts.retain_complete();
    }

    /// Records the newest step of which the store has the shards of all ranks, besides those of [`Self::record_late_shard`]: a
    /// listing may have many later steps that are incomplete. The shards are those of the generation that trained last.
    pub(crate) fn record_listed_shards(&mut self, seals: &[ShardSeal]) {
        let start = self.newest().map(|newest| newest.step);
        let mut steps: BTreeMap<Step, BTreeMap<Rank, ShardSeal>> = BTreeMap::new();
        for seal in seals.iter().filter(|seal| Some(seal.step) > start) {
            steps.entry(seal.step).or_default().insert(seal.rank, seal.clone());
        }
        let is_whole = |shards: &BTreeMap<Rank, ShardSeal>| {
            let all = u32::try_from(shards.len()).unwrap_or(u32::MAX);
            shards.values().all(|seal| seal.world_size == all && seal.rank.0 < all)
        };
        let generation = self.trained;
        let mut newest = steps.into_iter().rev();
        let newest = newest.find(|(step, shards)| is_whole(shards) && !self.attempts.is_void(generation, *step));
        if let Some((step, shards)) = newest {
            self.attempts.add_complete(generation, step, shards);
        }
    }

    fn record_shard(&mut self, generation: Generation, seal: ShardSeal, rules: &RetentionPolicy) {
        let step = seal.step;
        if let Some((start, of)) = self.newest().map(|newest| (newest.step, newest.generation))
            && step <= start
        {
            if step < start && generation > of {
                self.void_shards = self.void_shards.saturating_add(1);
                self.void_reason = Some(format!(
                    "step {step}: the job started from the checkpoint of step {start}, and this step is earlier; does the \
                     program restore it?"
                ));
            }
            return;
        }
        let rank = seal.rank;
        let world_size = seal.world_size;
        match rules.every_steps {
            Some(every) if every > 0 && step.0.is_multiple_of(every) => self
                .attempts
                .add_retained_image(generation, step, rank, world_size, seal),
            _ => self.attempts.add_image(generation, step, rank, world_size, seal),
        };
    }

    /// Returns the steps of a generation with at least one durable shard and no commit, oldest first.
    pub fn open_steps(&self, generation: Generation) -> Vec<Step> {
        self.attempts.steps(generation).collect()
    }

    /// Returns the generation of the ranks that were started last; 0 before the first.
    pub fn trained(&self) -> Generation {
        self.trained
    }

    /// Returns the attempts that are never committed.
    pub fn dead_attempts(&self) -> DeadAttempts {
        let being = self.committing.iter().map(|being| (being.generation, being.step));
        let done = self.committed.iter().map(|done| (done.generation, done.step));
        DeadAttempts {
            before: self.trained,
            void: self.attempts.void().clone(),
            committed: done.chain(being).collect(),
        }
    }

    /// Returns true if a save may still be committed: its manifest is being written, or shards are sealed.
    pub(crate) fn may_commit(&self) -> bool {
        self.committing.is_some() || self.complete_attempts().next().is_some() || self.is_open()
    }

    /// Returns true if the generation that trained last sealed a step later than every committed or complete one.
    pub fn is_open(&self) -> bool {
        let generation = self.trained;
        let whole = self.attempts.newest_complete(generation).map(|(step, _)| step);
        let done = whole.max(self.newest().map(|newest| newest.step));
        let sealed = self.stall_ms.keys().filter(|key| key.0 == generation).map(|key| key.1);
        let mut known = sealed.chain(self.attempts.steps(generation));
        known.any(|step| Some(step) > done && !self.attempts.is_void(generation, step))
    }

    /// Returns the newest step that all `ranks` ranks have sealed and that no manifest lists yet.
    pub fn saving(&self, ranks: usize) -> Option<Step> {
        let done = self.newest().map(|newest| newest.step);
        let sealed = self.stall_ms.iter().rev();
        let mut whole = sealed.filter(|((generation, step), stalls)| {
            let is_open = Some(*step) > done && !self.attempts.is_void(*generation, *step);
            is_open && *generation == self.trained && stalls.len() == ranks
        });
        whole.next().map(|((_, step), _)| *step)
    }

    /// Returns the first generation of this attempt of the run.
    pub(crate) fn first_generation(&self) -> Generation {
        self.first.max(Generation(1))
    }

    /// Returns true if this checkpoint is committed, or was struck off.
    pub(crate) fn is_known(&self, id: CheckpointId) -> bool {
        self.has(id.generation, id.step) || self.struck_off.contains(&id)
    }

    /// Records commits of the store that are newer than all that are listed, and returns their steps. `found` is sorted, with
    /// one checkpoint for each step.
    pub(crate) fn add_from_store(
        &mut self,
        at: Timestamp,
        found: &[CheckpointView],
        keeps_inherited: bool,
        stay: &[CheckpointId],
    ) -> Vec<Step> {
        let mut added = Vec::new();
        for view in found {
            let id = id_of(view);
            let is_newer = self.newest().is_none_or(|newest| view.step > newest.step);
            if !is_newer || self.is_known(id) {
                continue;
            }
            self.committed(at, view.generation, view.step, stay);
            if let Some(listed) = self.committed.iter_mut().find(|listed| id_of(listed) == id) {
                listed.clone_from(view);
                added.push(view.step);
            }
            if keeps_inherited {
                self.inherited.insert(id);
            }
        }
        added
    }

    /// Returns true if this checkpoint is committed.
    pub fn has(&self, generation: Generation, step: Step) -> bool {
        let mut known = self.committed.iter();
        known.any(|known| (known.generation, known.step) == (generation, step))
    }

    /// Returns the manifest of the newest complete attempt of a generation, unless a manifest is being written.
    /// Complete attempts that a newer one overtook before a commit follow after it.
    pub fn complete(&mut self, job: &JobId, generation: Generation) -> Option<Manifest> {
        if self.committing.is_some() {
            return None;
        }
        let (step, shards) = self.attempts.newest_complete(generation)?;
        let seals: Vec<ShardSeal> = shards.values().cloned().collect();
        let id = CheckpointId { step, generation };
        let before = self.committed.iter().rev().find(|known| known.step < step);
        let parent = before.map(|before| CheckpointId {
            step: before.step,
            generation: before.generation,
        });
        let mut manifest = Manifest::from_seals(job, id, parent, &seals).ok()?;
        manifest.run.clone_from(&self.run);
        self.committing = Some(manifest.clone());
        Some(manifest)
    }

    /// Records a commit. Older attempts are dropped, except complete ones in `stay`: a controller that was away finds
    /// several complete attempts and commits the newest first. Returns true if this is the newest checkpoint.
    pub fn committed(&mut self, at: Timestamp, generation: Generation, step: Step, stay: &[CheckpointId]) -> bool {
        let shards = self.attempts.images(generation, step).cloned().unwrap_or_default();
        let stall_ms = self.stall_ms.remove(&(generation, step)).unwrap_or_default();
        let late = self.newest().is_some_and(|newest| newest.step > step);
        if late {
            self.attempts.forget(generation, step)
        } else {
            self.attempts.remove_committed(step, |generation, step| {
                stay.contains(&CheckpointId { step, generation })
            })
        }
        let open: BTreeSet<(Generation, Step)> = self.attempts.complete_attempts().collect();
        self.stall_ms.retain(|key, _| key.1 > step || open.contains(key));
        let was_passed = self.passed.remove(&(generation, step)) && !self.attempts.is_void(generation, step);
        self.committing = None;
        self.forget_overtaken(generation, step);
        let known = |known: &CheckpointView| (known.step, known.generation) >= (step, generation);
        let place = self.committed.iter().position(known).unwrap_or(self.committed.len());
        let again = self.committed.get(place).is_some_and(|known| known.step == step);
        // An older checkpoint without a recorded attempt serves no purpose.
        if again || late && shards.is_empty() {
            return false;
        }
        let early = self.early.remove(&(generation, step)).unwrap_or_default();
        let view = CheckpointView {
            step,
            generation,
            world_size: u32::try_from(shards.len()).unwrap_or(u32::MAX),
            bytes: shards.values().fold(0, |sum, seal| sum.saturating_add(seal.bytes)),
            committed_at: at,
            stall_ms: stall_ms.into_iter().collect(),
            copied: early.copied,
            in_parity: early.in_parity,
            mirrored_at: None,
        };
        self.committed.insert(place, view);
        if was_passed {
            let newest = self.counts.newest_void.as_ref().filter(|void| void.step == step);
            let reason = newest.map_or_else(|| passed_reason(Rank(0), step, step), |void| void.reason.clone());
            self.counts.take_back_void(step, &reason);
        }
        let void_after = self.void_after(generation, step).count() as u64;
        if late {
            self.counts.count_committed(step, self.counts.void_in_row);
        } else {
            self.counts.count_committed(step, void_after);
        }
        self.limit_committed(stay);
        self.early.retain(|key, _| key.1 > step || open.contains(key));
        !late
    }

    /// Drops the oldest checkpoints that retention does not keep, and the stalls of all but the newest.
    fn limit_committed(&mut self, stay: &[CheckpointId]) {
        let newest = self.committed.len().saturating_sub(STALLS_SHOWN);
        for view in &mut self.committed[..newest] {
            view.stall_ms = Vec::new();
        }
        let mut many = self.committed.len().saturating_sub(COMMITTED_MAX);
        self.committed.retain(|view| {
            let id = CheckpointId {
                step: view.step,
                generation: view.generation,
            };
            let goes = many > 0 && !stay.contains(&id);
            many -= usize::from(goes);
            !goes
        });
    }

    /// Drops passed-over checkpoints once a later generation has reached their step.
    fn forget_overtaken(&mut self, generation: Generation, step: Step) {
        let committed = &mut self.committed;
        let suspicions = &mut self.suspicions;
        let overtaken = |id: &CheckpointId| id.generation < generation && id.step <= step;
        committed.retain(|view| !(overtaken(&id_of(view)) && suspicions.is_passed_over(id_of(view))));
        suspicions.forget_passed_over(overtaken);
    }

    /// Records a copy: an image in another node's memory, or a whole checkpoint in the object store.
    pub fn copied(&mut self, at: Timestamp, generation: Generation, step: Step, tier: CopyTier) {
        let known = self
            .committed
            .iter_mut()
            .find(|view| (view.generation, view.step) == (generation, step));
        match (known, tier) {
            (Some(view), CopyTier::Peer) => view.copied = view.copied.saturating_add(1),
            (Some(view), CopyTier::Parity) => view.in_parity = view.in_parity.saturating_add(1),
            (Some(view), CopyTier::Mirror) => view.mirrored_at = Some(at),
            // Memory is faster than the disk that a commit waits for.
            (None, CopyTier::Peer) => {
                let early = self.early(generation, step);
                early.copied = early.copied.saturating_add(1);
            }
            (None, CopyTier::Parity) => {
                let early = self.early(generation, step);
                early.in_parity = early.in_parity.saturating_add(1);
            }
            // Retention removed the checkpoint before the mirror was complete.
            (None, CopyTier::Mirror) => {}
        }
    }

    fn early(&mut self, generation: Generation, step: Step) -> &mut UncommittedCopies {
        let key = (generation, step);
        if self.early.len() >= STALLS_MAX && !self.early.contains_key(&key) {
            self.early.pop_first();
        }
        self.early.entry(key).or_default()
    }

    /// Records a failed copy. The checkpoint remains valid.
    pub fn not_copied(&mut self, step: Step, to: &str, reason: &str) {
        self.copies_failed = self.copies_failed.saturating_add(1);
        self.copy_reason = Some(format!("step {step} to {to}: {reason}"));
    }

    /// Records that the manifest could not be written; the attempt is void.
    pub fn refused(&mut self, generation: Generation, step: Step, reason: &str) {
        self.count_void(generation, step, reason);
        self.attempts.mark_void(generation, step);
        self.committing = None;
    }

    /// Records that a shard could not be stored; the attempt is void.
    pub fn failed(&mut self, generation: Generation, step: Step, reason: &str) {
        self.void_shards = self.void_shards.saturating_add(1);
        self.void_reason = Some(format!("step {step}: {reason}"));
        self.count_void(generation, step, reason);
        self.attempts.mark_void(generation, step);
    }

    /// Returns the committed checkpoints and complete attempts that the retention rules keep. If the best are to be kept,
    /// the checkpoints of earlier attempts without a known metric are kept as well: they were the best of their attempt.
    pub fn retained_checkpoints(
        &self,
        rules: &RetentionPolicy,
        now: Timestamp,
        metric: impl Fn(Generation, Step) -> BTreeMap<String, f64>,
    ) -> Vec<CheckpointId> {
        let known = self.committed.iter().map(|view| RetentionCandidate {
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
        let waiting = self
            .attempts
            .complete_attempts()
            .map(|(generation, step)| RetentionCandidate {
                id: CheckpointId { step, generation },
                step,
                at: now,
                metrics: metric(generation, step),
                needs: Vec::new(),
                leased: false,
            });
        let passed_over = self.suspicions.passed_over();
        let all = known.chain(waiting).filter(|kept| !passed_over.contains(&kept.id));
        let all: Vec<RetentionCandidate<CheckpointId>> = all.collect();
        let mut kept: BTreeSet<CheckpointId> = retained_checkpoints(rules, &all).into_keys().collect();
        if let Some(best) = &rules.best {
            let is_unknown = |known: &&RetentionCandidate<CheckpointId>| {
                self.inherited.contains(&known.id) && !known.metrics.contains_key(&best.metric)
            };
            kept.extend(all.iter().filter(is_unknown).map(|known| known.id));
        }
        // Passed-over checkpoints count for no rule and may become readable again.
        kept.extend(passed_over);
        kept.into_iter().collect()
    }

    /// Removes a damaged checkpoint, so that no rank starts from it again. Returns true if it was listed.
    pub fn distrust(&mut self, generation: Generation, step: Step) -> bool {
        let id = CheckpointId { step, generation };
        self.suspicions.clear(id);
        self.struck_off.insert(id);
        if self.struck_off.len() > STRUCK_OFF_MAX {
            self.struck_off.pop_first();
        }
        let before = self.committed.len();
        self.committed
            .retain(|known| (known.generation, known.step) != (generation, step));
        self.committed.len() < before
    }

    /// Ends the commit right of generations before the one that trained last (RG-3), except for a manifest that is
    /// being written. The one that trained last retains it until the next launch.
    pub fn fence(&mut self) {
        self.forget_before(self.trained);
    }

    /// Ends the commit right of all generations before the one that is launched (RG-3).
    pub fn launched(&mut self, generation: Generation) {
        self.trained = generation;
        self.forget_before(generation);
    }

    fn forget_before(&mut self, generation: Generation) {
        let committing = self
            .committing
            .as_ref()
            .map(|manifest| (manifest.generation, manifest.step));
        self.attempts.fence(generation, committing);
        self.stall_ms
            .retain(|key, _| key.0 >= generation || Some(*key) == committing);
        self.early
            .retain(|key, _| key.0 >= generation || Some(*key) == committing);
        self.passed.retain(|key| key.0 >= generation);
    }
}

fn id_of(view: &CheckpointView) -> CheckpointId {
    CheckpointId {
        step: view.step,
        generation: view.generation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const ONE: Generation = Generation(1);
    const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

    pub(super) fn seal(rank: u32, step: u64) -> ShardSeal {
        ShardSeal {
            rank: Rank(rank),
            step: Step(step),
            world_size: 2,
            index: "0".repeat(64),
            bytes: 1,
            ledger: None,
            schema: String::new(),
        }
    }

    /// Commits every complete attempt; returns the steps in commit order and the parent of each.
    fn commit_all(all: &mut JobCheckpoints, job: &JobId, rules: &RetentionPolicy) -> Vec<(u64, Option<u64>)> {
        let mut order = Vec::new();
        let mut next = all.committing.clone();
        while let Some(manifest) = next {
            let stay = all.retained_checkpoints(rules, NOW, |_, _| BTreeMap::new());
            all.committed(NOW, ONE, manifest.step, &stay);
            order.push((manifest.step.0, manifest.parent.map(|(step, _)| step.0)));
            next = all.complete(job, ONE);
        }
        order
    }

    #[test]
    fn a_controller_that_was_away_commits_the_newest_first_and_then_what_the_rules_name() {
        let job = JobId::from("llm");
        let mut all = JobCheckpoints::default();
        let rules = RetentionPolicy {
            last: 2,
            every_steps: Some(60),
            ..RetentionPolicy::default()
        };
        // All shards of one agent arrive before those of the other.
        for rank in 0..2 {
            for step in (10..=300).step_by(10) {
                all.durable(&job, ONE, seal(rank, step), &rules);
            }
        }
        let order = commit_all(&mut all, &job, &rules);
        let first = (60, None);
        let newest = (300, Some(60));
        let late = [(290, Some(60)), (240, Some(60)), (180, Some(60)), (120, Some(60))];
        assert_eq!(order, [&[first, newest][..], &late].concat());
        let steps: Vec<u64> = all.committed.iter().map(|view| view.step.0).collect();
        assert_eq!(
            steps,
            [60, 120, 180, 240, 290, 300],
            "oldest first, whenever they were committed"
        );
        assert!(all.committed.iter().all(|view| view.world_size == 2));
        assert!(all.durable(&job, ONE, seal(0, 300), &rules).is_none(), "told again");
    }

    /// RG-2: an unreadable checkpoint is retained until a later generation has reached its step, and counts for no rule
    /// meanwhile.
    #[test]
    fn a_checkpoint_that_is_passed_over_stays_until_it_is_overtaken() {
        let job = JobId::from("llm");
        let mut all = JobCheckpoints::default();
        let rules = RetentionPolicy {
            last: 1,
            ..RetentionPolicy::default()
        };
        let save = |all: &mut JobCheckpoints, generation: Generation, step: u64| {
            for rank in 0..2 {
                all.durable(&job, generation, seal(rank, step), &rules);
            }
            let stay = all.retained_checkpoints(&rules, NOW, |_, _| BTreeMap::new());
            all.committed(NOW, generation, Step(step), &stay);
        };
        let newest = |all: &JobCheckpoints| all.newest().map(|view| view.step.0);
        for step in [10, 20] {
            save(&mut all, ONE, step);
        }
        assert_eq!(all.pass_over_newest(), Some((Step(20), Step(10))));
        assert_eq!(
            (newest(&all), all.pass_over_newest()),
            (Some(10), None),
            "there is no other"
        );
        let two = Generation(2);
        all.launched(two);
        save(&mut all, two, 15);
        assert_eq!(newest(&all), Some(15));
        let kept = all.retained_checkpoints(&rules, NOW, |_, _| BTreeMap::new());
        let steps: Vec<u64> = kept.iter().map(|id| id.step.0).collect();
        assert_eq!(steps, [20, 15], "by generation");
        save(&mut all, two, 20);
        assert_eq!(newest(&all), Some(20));
        assert!(all.committed.is_sorted_by_key(|view| view.step) && !all.has(ONE, Step(20)));
    }

    /// The losses of an earlier attempt are not known to the next one.
    #[test]
    fn the_best_checkpoints_of_an_earlier_attempt_are_kept() {
        let rules = RetentionPolicy {
            last: 1,
            best: Some(rankguard_model::MetricRule {
                metric: "loss".to_owned(),
                good: rankguard_model::MetricGoal::Low,
                count: 1,
            }),
            ..RetentionPolicy::default()
        };
        let view = |step: u64| CheckpointView {
            step: Step(step),
            generation: ONE,
            world_size: 1,
            bytes: 1,
            committed_at: NOW,
            stall_ms: Vec::new(),
            copied: 0,
            in_parity: 0,
            mirrored_at: None,
        };
        let claim = StoreClaim {
            run: RunId::from("a"),
            first: Generation(2),
            start: None,
            checkpoints: vec![view(10), view(40)],
            passed_over: Vec::new(),
            same_size: Vec::new(),
        };
        let loss = |generation: Generation, step: Step| match generation {
            ONE => BTreeMap::new(),
            _ => BTreeMap::from([("loss".to_owned(), step.0 as f64)]),
        };
        let two = Generation(2);
        let kept = |keeps_inherited: bool| {
            let mut all = JobCheckpoints::default();
            all.claimed(&claim, keeps_inherited);
            all.launched(two);
            for step in [50, 60, 70] {
                all.committed(NOW, two, Step(step), &[]);
                let stay = all.retained_checkpoints(&rules, NOW, loss);
                all.committed.retain(|view| stay.contains(&id_of(view)));
            }
            all.committed.iter().map(|view| view.step.0).collect::<Vec<_>>()
        };
        assert_eq!(kept(true), [10, 40, 50, 70]);
        assert_eq!(kept(false), [50, 70], "as older journals decided");
    }

    #[test]
    fn an_overtaken_attempt_that_cannot_be_committed_holds_up_nobody() {
        let job = JobId::from("llm");
        let mut all = JobCheckpoints::default();
        let rules = RetentionPolicy {
            last: 1,
            every_steps: Some(10),
            ..RetentionPolicy::default()
        };
        for (rank, step) in [(0, 10), (0, 20), (0, 30), (1, 10), (1, 20), (1, 30)] {
            all.durable(&job, ONE, seal(rank, step), &rules);
        }
        all.committed(NOW, ONE, Step(10), &[]);
        assert_eq!(all.complete(&job, ONE).map(|manifest| manifest.step), Some(Step(30)));
        let stay = all.retained_checkpoints(&rules, NOW, |_, _| BTreeMap::new());
        assert!(all.committed(NOW, ONE, Step(30), &stay), "it is the newest");
        assert_eq!(all.complete(&job, ONE).map(|manifest| manifest.step), Some(Step(20)));
        all.refused(ONE, Step(20), "the store is full");
        assert!(all.complete(&job, ONE).is_none());
        assert_eq!(all.newest().map(|view| view.step), Some(Step(30)));
    }
}
