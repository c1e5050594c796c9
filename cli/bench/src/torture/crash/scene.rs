//! A job that saves repeatedly, and the judge of the state after a disturbed save.

use std::path::PathBuf;

use rankguard_checkpoint::format::{CheckpointId, Manifest};
use rankguard_checkpoint::retention::collect;
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::{Arena, Store};
use rankguard_model::{ShardSeal, with_causes};

use super::CrashVerdict;
use crate::torture::TortureError;
use crate::torture::corruption::read_below;
use crate::torture::subject::{LoadOutcome, TortureJob, id, persist, take};

/// Steps between checkpoints.
pub(crate) const INTERVAL: u64 = 10;

/// Number of checkpoints that retention keeps.
pub(crate) const KEPT: u32 = 2;

/// Path of an image to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaveMode {
    /// Each image is sealed in a slot, and then written from it.
    Whole,
    /// Images stream through windows.
    Window,
}

impl SaveMode {
    pub(crate) const ALL: [Self; 2] = [Self::Whole, Self::Window];

    /// Returns the prefix in names of phases and faults.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Window => "window-",
        }
    }

    /// Returns the rows of a table: `whole` for whole images; for windows so many that an image fills the window more
    /// than twice.
    pub(crate) fn rows(self, whole: u64) -> u64 {
        match self {
            Self::Whole => whole,
            Self::Window => 1400,
        }
    }

    /// Creates the arena or window of a rank.
    pub(crate) fn arena(self, subject: &TortureJob) -> Result<Arena, TortureError> {
        match self {
            Self::Whole => subject.arena(SLOTS),
            Self::Window => subject.window(),
        }
    }
}

/// A checkpoint with the durable shards of all ranks.
pub(crate) type DurableAttempt = (CheckpointId, Vec<ShardSeal>);

/// A store, the arenas of its ranks, and the checkpoints committed so far.
pub(crate) struct CrashScene {
    pub(crate) way: SaveMode,
    pub(crate) subject: TortureJob,
    pub(crate) store: Store,
    pub(crate) arenas: Vec<Arena>,
    /// Acknowledged commits, oldest first; the last [`KEPT`] of them.
    pub(crate) committed: Vec<CheckpointId>,
    /// The checkpoint being saved.
    pub(crate) saving: CheckpointId,
}

/// Number of slots of an arena: filling one leaves the previous image intact.
const SLOTS: u32 = 2;

impl CrashScene {
    /// Creates a job that has committed [`KEPT`] checkpoints.
    pub(crate) fn new(root: PathBuf, subject: TortureJob, way: SaveMode) -> Result<Self, TortureError> {
        let arenas = (0..subject.world).map(|_| way.arena(&subject));
        let mut scene = Self {
            way,
            arenas: arenas.collect::<Result<_, _>>()?,
            store: Store::open(root)?,
            subject,
            committed: Vec::new(),
            saving: id(INTERVAL, 1),
        };
        for _ in 0..KEPT {
            scene.finish()?;
            scene.advance_step();
        }
        Ok(scene)
    }

    /// Returns the slot of the image being saved.
    pub(crate) fn slot(&self) -> u32 {
        (self.saving.step.0 / INTERVAL % u64::from(SLOTS)) as u32
    }

    /// Returns the parent of the checkpoint being saved.
    pub(crate) fn parent(&self) -> Option<CheckpointId> {
        self.committed.iter().rev().find(|id| **id < self.saving).copied()
    }

    /// Advances to the next interval.
    pub(crate) fn advance_step(&mut self) {
        self.saving.step.0 += INTERVAL;
    }

    /// Copies and seals a rank's tensors.
    pub(crate) fn fill(&self, rank: u32) -> Result<(), TortureError> {
        let arena = &self.arenas[rank as usize];
        arena.release(self.slot())?;
        self.subject.fill(arena, self.slot(), self.saving, rank)
    }

    /// Writes a rank's shard.
    pub(crate) fn persist(&self, rank: u32) -> Result<ShardSeal, TortureError> {
        persist(
            &self.store,
            &self.arenas[rank as usize].sealed(self.slot())?,
            self.parent(),
        )
    }

    /// Streams a rank's tensors through its window, both sides concurrently.
    pub(crate) fn pass(&self, rank: u32, id: CheckpointId) -> Result<ShardSeal, TortureError> {
        let arena = &self.arenas[rank as usize];
        let filling = self.subject.filling(id, rank);
        let streaming = filling.announce(arena)?;
        std::thread::scope(|scope| {
            let passing = scope.spawn(|| filling.pass(arena, streaming));
            let taken = take(&self.store, arena, id.generation, &|| false);
            passing.join().expect("the rank's side does not panic")?;
            taken
        })
    }

    /// Builds the manifest over these seals.
    pub(crate) fn manifest(&self, seals: &[ShardSeal]) -> Result<Manifest, TortureError> {
        self.subject.manifest(self.saving, self.parent(), seals)
    }

    /// Records an acknowledged commit.
    pub(crate) fn was_committed(&mut self) {
        if self.committed.last() != Some(&self.saving) {
            self.committed.push(self.saving);
        }
        let old = self.committed.len().saturating_sub(KEPT as usize);
        self.committed.drain(..old);
    }

    /// Removes what retention does not keep. A failed removal is an error, too.
    pub(crate) fn collect(&self) -> Result<(), TortureError> {
        let collected = collect(&self.store, &self.subject.job, KEPT, &[])?;
        match collected.problems.first() {
            Some(problem) => Err(TortureError(problem.to_string())),
            None => Ok(()),
        }
    }

    /// Prepares the save up to the first call on the store.
    pub(crate) fn prepare(&self) -> Result<(), TortureError> {
        match self.way {
            SaveMode::Whole => (0..self.subject.world).try_for_each(|rank| self.fill(rank)),
            SaveMode::Window => Ok(()),
        }
    }

    /// Runs the whole save without a disturbance.
    pub(crate) fn finish(&mut self) -> Result<(), TortureError> {
        self.prepare()?;
        self.write_and_commit()
    }

    /// Runs the rest of the save without a disturbance.
    pub(crate) fn write_and_commit(&mut self) -> Result<(), TortureError> {
        let bring = |rank| match self.way {
            SaveMode::Whole => self.persist(rank),
            SaveMode::Window => self.pass(rank, self.saving),
        };
        let seals: Vec<_> = (0..self.subject.world).map(bring).collect::<Result<_, _>>()?;
        self.commit(&seals)
    }

    fn commit(&mut self, seals: &[ShardSeal]) -> Result<(), TortureError> {
        self.store.commit(&self.manifest(seals)?)?;
        self.was_committed();
        self.collect()
    }

    /// Judges the store as a restart finds it.
    pub(crate) fn judge(&self, verdict: &mut CrashVerdict) -> Result<(), TortureError> {
        let standing = self.store.committed_ids(&self.subject.job)?;
        for id in &self.committed {
            // A commit that failed after its rename is a checkpoint like any other, and counts in retention.
            let newer = standing.iter().filter(|other| *other > id).count();
            if !standing.contains(id) && newer >= KEPT as usize {
                continue;
            }
            let loaded = match self.store.load(&self.subject.job, *id) {
                Ok(checkpoint) => self.subject.load(&checkpoint, &[&self.store]),
                Err(problem) => LoadOutcome::Refused(with_causes(&problem)),
            };
            match loaded {
                LoadOutcome::Right => {}
                LoadOutcome::Refused(text) => {
                    verdict.lost_commits += 1;
                    verdict
                        .faults
                        .push(format!("{id} was committed and does not load: {text}"));
                }
                LoadOutcome::Wrong(place) => {
                    verdict.wrong_bytes += 1;
                    verdict.faults.push(format!("{id} has other bytes: {place}"));
                }
            }
        }
        let newest = self.store.newest(&self.subject.job, VerifyDepth::Bytes)?;
        let Some(checkpoint) = newest.checkpoint else {
            verdict.intervals_lost = self.saving.step.0 / INTERVAL;
            verdict.faults.push(format!("nothing loads: {:?}", newest.skipped));
            return Ok(());
        };
        let found = checkpoint.id();
        if self.committed.last().is_some_and(|last| found < *last) {
            verdict.lost_commits += 1;
            verdict.faults.push(format!("a restart finds {found}"));
        }
        verdict.intervals_lost = self.saving.step.0.saturating_sub(found.step.0) / INTERVAL;
        if let LoadOutcome::Wrong(place) | LoadOutcome::Refused(place) = self.subject.load(&checkpoint, &[&self.store])
        {
            verdict.wrong_bytes += 1;
            verdict
                .faults
                .push(format!("the newest, {found}, has other bytes: {place}"));
        }
        Ok(())
    }

    /// Repeats the save, as the same generation or the next one, and advances to the next interval.
    pub(crate) fn recover(&mut self, restart: bool, verdict: &mut CrashVerdict) {
        let again = if restart {
            self.saving.generation.0 += 1;
            self.finish()
        } else {
            self.write_and_commit()
        };
        self.is_over(again, verdict);
    }

    /// Commits complete attempts in the store that were not committed because of a death, oldest first.
    pub(crate) fn commit_attempts(&mut self, attempts: Vec<DurableAttempt>, verdict: &mut CrashVerdict) {
        for (id, seals) in attempts {
            self.saving = id;
            let adopted = self.commit(&seals);
            self.is_over(adopted, verdict);
        }
    }

    fn is_over(&mut self, done: Result<(), TortureError>, verdict: &mut CrashVerdict) {
        if let Err(problem) = done {
            verdict.stuck = true;
            verdict.faults.push(format!("the save cannot be done again: {problem}"));
        }
        self.advance_step();
    }

    /// Judges the state after the recovery: committed checkpoints load, and no temporary or torn files remain.
    pub(crate) fn judge_after(&self, verdict: &mut CrashVerdict) -> Result<(), TortureError> {
        let mut after = CrashVerdict::default();
        self.judge(&mut after)?;
        verdict.lost_commits += after.lost_commits;
        verdict.wrong_bytes += after.wrong_bytes;
        verdict.faults.append(&mut after.faults);
        let listing = self.store.manifests(&self.subject.job)?;
        let files = read_below(self.store.root())?;
        let temps = files.keys().filter(|path| path.contains(".tmp-")).count();
        let clean = listing.manifests.len() == KEPT as usize && listing.torn.is_empty() && temps == 0;
        if !verdict.stuck && !clean {
            verdict.stuck = true;
            let names: Vec<&str> = files.keys().map(String::as_str).collect();
            verdict
                .faults
                .push(format!("something was left lying about: {}", names.join(", ")));
        }
        Ok(())
    }

    /// Compares an image in a rank's arena with the rank's state at that step; `None` if no image is sealed.
    pub(crate) fn image_is_right(&self, rank: u32, slot: u32, id: CheckpointId) -> Result<Option<bool>, TortureError> {
        let arena = &self.arenas[rank as usize];
        let Ok(sealed) = arena.sealed(slot) else {
            return Ok(None);
        };
        let index = sealed.index();
        let mut right = true;
        right &= index.step == id.step && index.rank.0 == rank && index.state == self.subject.state(rank, id.step);
        for entry in &index.tensors {
            let expected = self.subject.expected(std::slice::from_ref(&entry.boxed), id.step);
            let mut found = vec![0; expected.len()];
            arena.read_image(slot, entry.at, &mut found)?;
            right &= found == expected;
        }
        Ok(Some(right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(way: SaveMode, harm: impl FnOnce(&CrashScene)) -> CrashVerdict {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let scene = CrashScene::new(dir.path().join("store"), TortureJob::new(2, 40, 5), way).expect("saves");
        harm(&scene);
        let mut verdict = CrashVerdict::default();
        scene.judge(&mut verdict).expect("judged");
        verdict
    }

    #[test]
    fn an_undisturbed_job_has_lost_nothing() {
        for way in SaveMode::ALL {
            let verdict = judged(way, |_| {});
            assert_eq!(
                (verdict.lost_commits, verdict.wrong_bytes),
                (0, 0),
                "{:?}",
                verdict.faults
            );
            assert_eq!(verdict.intervals_lost, 1, "what is being saved is not there yet");
        }
    }

    /// The judge itself can fail: a lost commit and one with other bytes are counted.
    #[test]
    fn a_lost_commit_and_wrong_bytes_are_counted() {
        let lost = judged(SaveMode::Whole, |scene| {
            let newest = *scene.committed.last().expect("committed");
            scene.store.remove(&scene.subject.job, newest).expect("removed");
        });
        assert!(lost.lost_commits > 0 && lost.intervals_lost > 1, "{:?}", lost.faults);
        let wrong = judged(SaveMode::Window, |scene| {
            let other = TortureJob {
                seed: !scene.subject.seed,
                ..scene.subject.clone()
            };
            let newest = *scene.committed.last().expect("committed");
            scene.store.remove(&scene.subject.job, newest).expect("removed");
            other.save(&scene.store, newest, None).expect("saved");
        });
        assert!(wrong.wrong_bytes > 0, "{:?}", wrong.faults);
    }
}
