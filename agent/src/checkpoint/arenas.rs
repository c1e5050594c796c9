//! The arenas of this node, by job. They outlive the ranks that fill them: that is what they are for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_checkpoint::Arena;
use rankguard_checkpoint::arena::{ArenaError, SlotState};
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
                if which((image.draft().generation, image.draft().step)) {
                    let _ = held.arena.release(image.slot());
                }
            }
        }
        list.retain(|held| held.current || !held.arena.sealed_images().is_empty());
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
