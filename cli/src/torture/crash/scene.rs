//! A job that saves again and again, and the judge of what is left when a save was disturbed.

use std::path::PathBuf;

use rankguard_checkpoint::format::{CheckpointId, Manifest};
use rankguard_checkpoint::retention::collect;
use rankguard_checkpoint::store::Depth;
use rankguard_checkpoint::{Arena, Store};
use rankguard_model::{ShardSeal, with_causes};

use super::Verdict;
use crate::torture::TortureError;
use crate::torture::corruption::read_below;
use crate::torture::subject::{Outcome, Subject, id, persist};

/// Steps between checkpoints.
pub(crate) const INTERVAL: u64 = 10;

/// Checkpoints that retention keeps.
pub(crate) const KEPT: u32 = 2;

/// A store, the arenas of its ranks, and what was committed so far.
pub(crate) struct Scene {
    pub(crate) subject: Subject,
    pub(crate) store: Store,
    pub(crate) arenas: Vec<Arena>,
    /// What was told to be committed, oldest first; the last [`KEPT`] of them.
    pub(crate) committed: Vec<CheckpointId>,
    /// What is being saved.
    pub(crate) saving: CheckpointId,
}

/// Slots of an arena: an image that is being filled leaves the one before it alone.
const SLOTS: u32 = 2;

impl Scene {
    /// A job that has committed [`KEPT`] checkpoints.
    pub(crate) fn new(root: PathBuf, subject: Subject) -> Result<Self, TortureError> {
        let arenas = (0..subject.world).map(|_| subject.arena(SLOTS));
        let mut scene = Self {
            arenas: arenas.collect::<Result<_, _>>()?,
            store: Store::open(root)?,
            subject,
            committed: Vec::new(),
            saving: id(INTERVAL, 1),
        };
        for _ in 0..KEPT {
            scene.finish()?;
            scene.go_on();
        }
        Ok(scene)
    }

    /// The slot that the image being saved goes to.
    pub(crate) fn slot(&self) -> u32 {
        (self.saving.step.0 / INTERVAL % u64::from(SLOTS)) as u32
    }

    /// The checkpoint that the one being saved goes back to.
    pub(crate) fn parent(&self) -> Option<CheckpointId> {
        self.committed.iter().rev().find(|id| **id < self.saving).copied()
    }

    /// The next interval is over.
    pub(crate) fn go_on(&mut self) {
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

    /// The manifest over these seals.
    pub(crate) fn manifest(&self, seals: &[ShardSeal]) -> Result<Manifest, TortureError> {
        self.subject.manifest(self.saving, self.parent(), seals)
    }

    /// It was told to be committed.
    pub(crate) fn was_committed(&mut self) {
        if self.committed.last() != Some(&self.saving) {
            self.committed.push(self.saving);
        }
        let old = self.committed.len().saturating_sub(KEPT as usize);
        self.committed.drain(..old);
    }

    /// Removes what retention does not keep. What could not be removed is an error too.
    pub(crate) fn collect(&self) -> Result<(), TortureError> {
        let collected = collect(&self.store, &self.subject.job, KEPT, &[])?;
        match collected.problems.first() {
            Some(problem) => Err(TortureError(problem.to_string())),
            None => Ok(()),
        }
    }

    /// The whole save, undisturbed.
    pub(crate) fn finish(&mut self) -> Result<(), TortureError> {
        for rank in 0..self.subject.world {
            self.fill(rank)?;
        }
        self.write_and_commit()
    }

    /// What follows the seals, undisturbed.
    pub(crate) fn write_and_commit(&mut self) -> Result<(), TortureError> {
        let seals: Vec<_> = (0..self.subject.world)
            .map(|rank| self.persist(rank))
            .collect::<Result<_, _>>()?;
        self.store.commit(&self.manifest(&seals)?)?;
        self.was_committed();
        self.collect()
    }

    /// Judges the store as a restart finds it.
    pub(crate) fn judge(&self, verdict: &mut Verdict) -> Result<(), TortureError> {
        let standing = self.store.committed_ids(&self.subject.job)?;
        for id in &self.committed {
            // A commit that failed after its rename is a checkpoint like any other, and counts when old ones go.
            let newer = standing.iter().filter(|other| *other > id).count();
            if !standing.contains(id) && newer >= KEPT as usize {
                continue;
            }
            let loaded = match self.store.load(&self.subject.job, *id) {
                Ok(checkpoint) => self.subject.load(&checkpoint, &[&self.store]),
                Err(problem) => Outcome::Refused(with_causes(&problem)),
            };
            match loaded {
                Outcome::Right => {}
                Outcome::Refused(text) => {
                    verdict.lost_commits += 1;
                    verdict
                        .faults
                        .push(format!("{id} was committed and does not load: {text}"));
                }
                Outcome::Wrong(place) => {
                    verdict.wrong_bytes += 1;
                    verdict.faults.push(format!("{id} has other bytes: {place}"));
                }
            }
        }
        let newest = self.store.newest(&self.subject.job, Depth::Bytes)?;
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
        if let Outcome::Wrong(place) | Outcome::Refused(place) = self.subject.load(&checkpoint, &[&self.store]) {
            verdict.wrong_bytes += 1;
            verdict
                .faults
                .push(format!("the newest, {found}, has other bytes: {place}"));
        }
        Ok(())
    }

    /// Does the save again, as the same generation or the next one, and goes on to the next interval.
    pub(crate) fn recover(&mut self, restart: bool, verdict: &mut Verdict) {
        let again = if restart {
            self.saving.generation.0 += 1;
            self.finish()
        } else {
            self.write_and_commit()
        };
        if let Err(problem) = again {
            verdict.stuck = true;
            verdict.faults.push(format!("the save cannot be done again: {problem}"));
        }
        self.go_on();
    }

    /// After the recovery: what was committed loads, and nothing is left lying about.
    pub(crate) fn judge_after(&self, verdict: &mut Verdict) -> Result<(), TortureError> {
        let mut after = Verdict::default();
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

    /// Whether an image in a rank's arena is what the rank had at that step; `None` where none is sealed.
    pub(crate) fn image_is_right(&self, rank: u32, slot: u32, id: CheckpointId) -> Result<Option<bool>, TortureError> {
        let arena = &self.arenas[rank as usize];
        let Ok(sealed) = arena.sealed(slot) else {
            return Ok(None);
        };
        let (index, mut right) = (sealed.index(), true);
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

    fn judged(harm: impl FnOnce(&Scene)) -> Verdict {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let scene = Scene::new(dir.path().join("store"), Subject::new(2, 40, 5)).expect("saves");
        harm(&scene);
        let mut verdict = Verdict::default();
        scene.judge(&mut verdict).expect("judged");
        verdict
    }

    #[test]
    fn an_undisturbed_job_has_lost_nothing() {
        let verdict = judged(|_| {});
        assert_eq!(
            (verdict.lost_commits, verdict.wrong_bytes),
            (0, 0),
            "{:?}",
            verdict.faults
        );
        assert_eq!(verdict.intervals_lost, 1, "what is being saved is not there yet");
    }

    /// The judge itself can fail: a commit that is gone, and one of other bytes, are counted.
    #[test]
    fn a_lost_commit_and_wrong_bytes_are_counted() {
        let lost = judged(|scene| {
            let newest = *scene.committed.last().expect("committed");
            scene.store.remove(&scene.subject.job, newest).expect("removed");
        });
        assert!(lost.lost_commits > 0 && lost.intervals_lost > 1, "{:?}", lost.faults);
        let wrong = judged(|scene| {
            let other = Subject {
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
