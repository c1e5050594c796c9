//! The arenas of a node, by job and place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_checkpoint::Arena;
use rankguard_checkpoint::arena::SlotState;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_model::{Generation, JobId};

/// Slots of an arena: the kept image, one that is being written, one that is being filled.
const SLOTS: u32 = 3;

/// All of them. A place has several when images grew (fewer ranks share the same tensors): the last one is in use, the
/// ones before it stay until what they hold is no longer needed.
#[derive(Debug, Default)]
pub(super) struct Arenas {
    jobs: Mutex<BTreeMap<JobId, OfJob>>,
}

#[derive(Debug, Default)]
struct OfJob {
    places: BTreeMap<u32, Vec<Arc<Arena>>>,
    kept: Option<CheckpointId>,
}

impl Arenas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, OfJob>> {
        self.jobs.lock().expect("no holder of the arenas panics")
    }

    /// The arena of a place, made when there is none that is large enough.
    pub(super) fn take(&self, job: &JobId, local_rank: u32, image_bytes: u64) -> Result<Arc<Arena>, String> {
        if let Some(arena) = self.current(job, local_rank)
            && arena.geometry().image_bytes >= image_bytes
        {
            return Ok(arena);
        }
        // Made outside the lock: touching every page of a large arena takes seconds. A place has one rank, so nobody
        // makes the same one at the same time.
        let name = format!("rankguard-{job}-{local_rank}");
        let arena = Arena::create(&name, SLOTS, image_bytes).map_err(|error| super::chain(&error))?;
        let arena = Arc::new(arena);
        let mut jobs = self.lock();
        let place = jobs
            .entry(job.clone())
            .or_default()
            .places
            .entry(local_rank)
            .or_default();
        place.retain(|older| !older.sealed_images().is_empty());
        place.push(Arc::clone(&arena));
        Ok(arena)
    }

    /// The arena that a place uses now.
    pub(super) fn current(&self, job: &JobId, local_rank: u32) -> Option<Arc<Arena>> {
        self.lock().get(job)?.places.get(&local_rank)?.last().cloned()
    }

    /// Every arena of a job.
    pub(super) fn all(&self, job: &JobId) -> Vec<Arc<Arena>> {
        let jobs = self.lock();
        let of_job = jobs.get(job);
        of_job
            .into_iter()
            .flat_map(|of_job| of_job.places.values().flatten().cloned())
            .collect()
    }

    pub(super) fn kept(&self, job: &JobId) -> Option<CheckpointId> {
        self.lock().get(job)?.kept
    }

    pub(super) fn keep(&self, job: &JobId, id: CheckpointId) {
        if let Some(of_job) = self.lock().get_mut(job) {
            of_job.kept = Some(id);
        }
    }

    pub(super) fn fence(&self, job: &JobId, generation: Generation) {
        for arena in self.all(job) {
            arena.raise_fence(generation);
            for slot in 0..arena.geometry().slots {
                let Ok((state, by)) = arena.slot(slot) else { continue };
                let left_behind = !matches!(state, SlotState::Empty | SlotState::Sealed) && by < generation;
                if left_behind {
                    release(&arena, slot);
                }
            }
        }
    }

    /// Frees the images of a job of which `unwanted` is true, and the arenas that are only kept for such.
    pub(super) fn release(&self, job: &JobId, unwanted: impl Fn(CheckpointId) -> bool) {
        for arena in self.all(job) {
            for slot in 0..arena.geometry().slots {
                let of = arena.sealed(slot).map(|image| image.draft().id());
                let sealed = matches!(arena.slot(slot), Ok((SlotState::Sealed, _)));
                // A seal that cannot be read is of no use either.
                if sealed && of.map_or(true, &unwanted) {
                    release(&arena, slot);
                }
            }
        }
        if let Some(of_job) = self.lock().get_mut(job) {
            for place in of_job.places.values_mut() {
                let last = place.len().saturating_sub(1);
                let mut position = 0;
                place.retain(|arena| {
                    position += 1;
                    position > last || !arena.sealed_images().is_empty()
                });
            }
        }
    }

    pub(super) fn free(&self, job: &JobId) {
        self.lock().remove(job);
    }
}

pub(super) fn release(arena: &Arena, slot: u32) {
    if let Err(error) = arena.release(slot) {
        tracing::warn!(%error, slot, "slot not released");
    }
}
