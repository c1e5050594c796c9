//! The arenas of this node, by job. They outlive the ranks that fill them: that is what they are for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_checkpoint::Arena;
use rankguard_checkpoint::arena::{ArenaError, SealedImage, SlotState};
use rankguard_model::{Generation, JobId, Step};

/// Slots of an arena: one for the newest committed image, one on its way to disk, one to fill.
const SLOTS: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Arenas {
    by_job: Mutex<BTreeMap<JobId, Vec<Held>>>,
}

#[derive(Debug)]
struct Held {
    local_rank: u32,
    arena: Arc<Arena>,
    /// A rank of the newest generation was given it.
    current: bool,
}

impl Arenas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<Held>>> {
        self.by_job.lock().expect("no holder of the arenas panics")
    }

    /// All arenas of a job.
    pub(super) fn of(&self, job: &JobId) -> Vec<Arc<Arena>> {
        self.lock()
            .get(job)
            .into_iter()
            .flatten()
            .map(|held| held.arena.clone())
            .collect()
    }

    /// The arena of a rank, large enough for its image: the one it had if that fits, else a new one. The old one stays for
    /// as long as it holds an image that is worth something.
    pub(super) fn give(
        &self,
        job: &JobId,
        generation: Generation,
        local_rank: u32,
        image_bytes: u64,
    ) -> Result<Arc<Arena>, ArenaError> {
        let mut by_job = self.lock();
        let list = by_job.entry(job.clone()).or_default();
        list.retain(|held| held.local_rank != local_rank || held.current || !held.arena.sealed_images().is_empty());
        let fits = |held: &&mut Held| held.local_rank == local_rank && held.arena.geometry().image_bytes >= image_bytes;
        if let Some(held) = list.iter_mut().find(fits) {
            held.current = true;
            held.arena.raise_fence(generation);
            return Ok(held.arena.clone());
        }
        let arena = Arc::new(Arena::create(
            &format!("rankguard-{job}-{local_rank}"),
            SLOTS,
            image_bytes,
        )?);
        arena.raise_fence(generation);
        for held in list.iter_mut().filter(|held| held.local_rank == local_rank) {
            held.current = false;
        }
        list.push(Held {
            local_rank,
            arena: arena.clone(),
            current: true,
        });
        Ok(arena)
    }

    /// Frees sealed images of a job by generation and step, and arenas that nobody uses any more.
    pub(super) fn release(&self, job: &JobId, which: impl Fn((Generation, Step)) -> bool) {
        let mut by_job = self.lock();
        let Some(list) = by_job.get_mut(job) else { return };
        for held in list.iter() {
            for image in held.arena.sealed_images() {
                if which((image.index().generation, image.index().step)) {
                    let _ = held.arena.release(image.slot());
                }
            }
        }
        list.retain(|held| held.current || !held.arena.sealed_images().is_empty());
    }

    /// An image became durable. When its arena has no slot left to fill, the oldest image gives way that is neither this
    /// one nor committed: of attempts that never became a checkpoint (a disk that was full for a while) only the newest is
    /// worth its memory, and without a free slot there would never be another checkpoint.
    pub(super) fn make_room(arena: &Arena, newest: (Generation, Step), kept: Option<(Generation, Step)>) {
        if !arena.empty_slots().is_empty() {
            return;
        }
        let name = |image: &SealedImage<'_>| (image.index().generation, image.index().step);
        let images = arena.sealed_images();
        let spare = images
            .iter()
            .filter(|image| name(image) < newest && Some(name(image)) != kept);
        if let Some(oldest) = spare.min_by_key(|image| name(image)) {
            let _ = arena.release(oldest.slot());
        }
    }

    /// Frees what older generations left half done: their ranks are gone.
    pub(super) fn release_unsealed(&self, job: &JobId, generation: Generation) {
        for arena in self.of(job) {
            for slot in 0..arena.geometry().slots {
                let (state, of) = arena.slot(slot).unwrap_or((SlotState::Empty, generation));
                let left = !matches!(state, SlotState::Empty | SlotState::Sealed);
                // A number that means nothing is left over from a rank that scribbled; its slot is worth nothing.
                if state == SlotState::Broken || left && of < generation {
                    let _ = arena.release(slot);
                }
            }
        }
    }

    pub(super) fn forget(&self, job: &JobId) {
        self.lock().remove(job);
    }
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::arena::ImageOf;
    use rankguard_checkpoint::format::{Dtype, TensorBox};
    use rankguard_model::Rank;

    use super::*;

    /// Fills the lowest empty slot with an image of this step.
    fn fill(arena: &Arena, step: u64) {
        let job = JobId::from("train");
        let of = ImageOf::new(&job, Step(step), Generation(1), Rank(0), 1);
        let slot = arena.empty_slots()[0];
        let tensor = TensorBox::whole("w", Dtype::U8, vec![4]);
        let state = serde_json::Value::Null;
        arena
            .fill(slot, &of, &[(tensor, &[1, 2, 3, 4])], &state)
            .expect("the slot is empty");
    }

    fn steps(arena: &Arena) -> Vec<u64> {
        let mut steps: Vec<u64> = arena.sealed_images().iter().map(|image| image.index().step.0).collect();
        steps.sort_unstable();
        steps
    }

    #[test]
    fn attempts_that_never_became_a_checkpoint_give_way_and_the_committed_image_stays() {
        let arena = Arena::create("test", SLOTS, 4096).expect("memory for three small slots");
        for step in [10, 20, 30] {
            fill(&arena, step);
        }
        let at = |step| (Generation(1), Step(step));
        Arenas::make_room(&arena, at(30), Some(at(10)));
        assert_eq!(steps(&arena), [10, 30]);
        Arenas::make_room(&arena, at(30), Some(at(10)));
        assert_eq!(steps(&arena), [10, 30], "with a free slot nothing goes");
        fill(&arena, 40);
        Arenas::make_room(&arena, at(40), None);
        assert_eq!(steps(&arena), [30, 40], "without a commit the oldest goes");
    }
}
