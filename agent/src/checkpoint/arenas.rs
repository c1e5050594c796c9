//! Arenas of this node, by job. They outlive the ranks that fill them. Arenas that the keeper process holds also
//! outlive a killed agent.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_checkpoint::arena::{ArenaError, ArenaShape, SealedImage, SlotState};
use rankguard_checkpoint::format::ShardIndex;
use rankguard_checkpoint::{Arena, CheckpointLease};
use rankguard_model::{Generation, JobId, RankSlot, Step};

use super::error::RankServiceError;
use super::keeper::{ArenaKeeper, ArenaLabel, ArenaRegistration};

#[derive(Debug)]
pub(super) struct ArenaTable {
    keeper: Arc<ArenaKeeper>,
    by_job: Mutex<BTreeMap<JobId, Vec<ArenaEntry>>>,
}

/// Arena of one rank, with the lock that orders the writes of its images.
#[derive(Debug)]
pub(crate) struct RankArena {
    pub(crate) arena: Arc<Arena>,
    /// Serialises image writes to disk, so that an image behind the current one can be replaced.
    pub(super) turn: Mutex<()>,
    /// Shard written last.
    pub(super) last: Mutex<Option<ShardIndex>>,
    /// Lease on the checkpoint that the last shard borrows from, held until that shard's checkpoint is committed.
    pub(super) lease: Mutex<Option<CheckpointLease>>,
    /// Registration with the keeper process, which also holds the arena's file until this agent drops it.
    _kept: Option<ArenaRegistration>,
}

impl RankArena {
    fn of(arena: Arena, kept: Option<ArenaRegistration>) -> Arc<Self> {
        Arc::new(Self {
            arena: Arc::new(arena),
            turn: Mutex::default(),
            last: Mutex::default(),
            lease: Mutex::default(),
            _kept: kept,
        })
    }
}

#[derive(Debug)]
struct ArenaEntry {
    local_rank: u32,
    place: Arc<RankArena>,
    /// True if a rank of the newest generation received it.
    current: bool,
}

impl ArenaEntry {
    fn is_worth_keeping(&self) -> bool {
        self.current || !self.place.arena.sealed_images().is_empty()
    }
}

/// Parameters of a request for an arena.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArenaRequest<'a> {
    pub(super) job: &'a JobId,
    pub(super) generation: Generation,
    pub(super) local_rank: u32,
    /// All ranks of the job on this node; each of them requests an arena.
    pub(super) ranks: &'a [RankSlot],
    pub(super) image_bytes: u64,
    /// Bytes that a new arena has beyond `image_bytes`, for images that grow.
    pub(super) headroom_bytes: u64,
    /// Minimum bytes of the description area; 0 selects the default for the image size.
    pub(super) meta_bytes: u64,
    pub(super) slots: u32,
    /// Maximum memory in bytes for an image that is streamed through a window; `None` for an image that is held whole.
    pub(super) window: Option<u64>,
}

impl ArenaRequest<'_> {
    /// Returns the bytes that the image of one rank takes.
    fn each(&self) -> u64 {
        self.window
            .map_or(self.shape().image_bytes, |window| window.min(self.image_bytes))
            .saturating_add(self.meta_bytes)
    }

    /// Returns the shape of a new arena.
    fn shape(&self) -> ArenaShape {
        ArenaShape {
            slots: self.slots,
            image_bytes: self.image_bytes.saturating_add(self.headroom_bytes),
            meta_bytes: self.meta_bytes,
        }
    }

    fn make(&self) -> Result<Arena, ArenaError> {
        let name = format!("rankguard-{}-{}", self.job, self.local_rank);
        match self.window {
            Some(window) => Arena::windowed_with(&name, self.shape().image_bytes, window, self.meta_bytes),
            None => Arena::create_shaped(&name, self.shape()),
        }
    }
}

impl ArenaTable {
    pub(super) fn new(keeper: Arc<ArenaKeeper>) -> Self {
        Self {
            keeper,
            by_job: Mutex::default(),
        }
    }

    /// Takes over an arena left by an earlier agent and returns the number of its images. An arena without images is
    /// dropped.
    pub(super) fn inherit(
        &self,
        kept: ArenaRegistration,
        label: ArenaLabel,
        file: OwnedFd,
    ) -> Result<usize, ArenaError> {
        let shape = ArenaShape {
            slots: label.slots,
            image_bytes: label.image_bytes,
            meta_bytes: label.meta_bytes,
        };
        let arena = Arena::inherit(file, shape)?;
        let images = arena.sealed_images().len();
        if images > 0 {
            let held = ArenaEntry {
                local_rank: label.local_rank,
                place: RankArena::of(arena, Some(kept)),
                current: false,
            };
            self.lock().entry(label.job).or_default().push(held);
        }
        Ok(images)
    }

    /// Drops the arenas of jobs of which no generation has requested one since the takeover.
    pub(super) fn forget_unclaimed(&self) {
        self.lock().retain(|_, list| list.iter().any(|held| held.current));
    }

    /// Ends the keeper process, so that no arena outlives this agent.
    pub(super) fn end(&self) {
        self.keeper.end();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<ArenaEntry>>> {
        self.by_job.lock().expect("no holder of the arenas panics")
    }

    /// Returns all arenas of a job.
    pub(super) fn of(&self, job: &JobId) -> Vec<Arc<RankArena>> {
        self.lock()
            .get(job)
            .into_iter()
            .flatten()
            .map(|held| held.place.clone())
            .collect()
    }

    /// Returns an arena of a rank that is large enough for its image: the present one if that fits, else a new one if
    /// `admit` finds memory for the state, in bytes, of all ranks of the node that have none yet. The old arena is
    /// retained while it holds a sealed image.
    pub(super) fn arena_for(
        &self,
        asked: ArenaRequest<'_>,
        admit: impl FnOnce(u64) -> Result<(), RankServiceError>,
    ) -> Result<Arc<RankArena>, RankServiceError> {
        let ArenaRequest { job, local_rank, .. } = asked;
        let mut by_job = self.lock();
        let list = by_job.entry(job.clone()).or_default();
        list.retain(|held| held.local_rank != local_rank || held.is_worth_keeping());
        let fits = |held: &ArenaEntry, local_rank| {
            let (arena, geometry) = (&held.place.arena, held.place.arena.geometry());
            // An image may still be passing through the window of an earlier request.
            let same = match asked.window {
                Some(window) => (1..=window).contains(&geometry.window) && !arena.empty_slots().is_empty(),
                None => !geometry.is_windowed(),
            };
            let large = geometry.image_bytes >= asked.image_bytes && geometry.meta_bytes >= asked.meta_bytes;
            same && large && held.local_rank == local_rank
        };
        if let Some(held) = list.iter_mut().find(|held| fits(held, local_rank)) {
            held.current = true;
            held.place.arena.raise_fence(asked.generation);
            return Ok(held.place.clone());
        }
        let without = |slot: &&RankSlot| !list.iter().any(|held| fits(held, slot.local_rank));
        let unarmed = asked.ranks.iter().filter(without).count().max(1) as u64;
        admit(asked.each().saturating_mul(unarmed))?;
        let arena = asked.make()?;
        // An image in a window is useless without its agent, so the keeper does not hold it.
        let kept = match asked.window {
            Some(_) => None,
            None => self
                .keeper
                .register_arena(job, local_rank, asked.shape(), arena.as_fd()),
        };
        let place = RankArena::of(arena, kept);
        place.arena.raise_fence(asked.generation);
        for held in list.iter_mut().filter(|held| held.local_rank == local_rank) {
            held.current = false;
        }
        list.push(ArenaEntry {
            local_rank,
            place: place.clone(),
            current: true,
        });
        Ok(place)
    }

    /// Frees sealed images of a job by generation and step, except those that are being written, and drops arenas that
    /// are no longer in use.
    pub(super) fn release(&self, job: &JobId, which: impl Fn((Generation, Step)) -> bool) {
        let mut by_job = self.lock();
        let Some(list) = by_job.get_mut(job) else { return };
        for held in list.iter() {
            for image in held.place.arena.sealed_images() {
                if which((image.index().generation, image.index().step)) && !is_written(&held.place.arena, image.slot())
                {
                    let _ = held.place.arena.release(image.slot());
                }
            }
        }
        list.retain(ArenaEntry::is_worth_keeping);
    }

    /// Frees images that are on disk and of which no checkpoint is made, so that the next save takes their slots and not
    /// that of the newest commit.
    pub(super) fn release_durable(&self, job: &JobId, void: (Generation, Step)) {
        for place in self.of(job) {
            let arena = &place.arena;
            for image in arena.sealed_images() {
                let of = (image.index().generation, image.index().step);
                let is_durable = matches!(arena.slot(image.slot()), Ok((SlotState::Durable, _)));
                if of == void && is_durable {
                    let _ = arena.release(image.slot());
                }
            }
        }
    }

    /// Marks the images of a committed checkpoint as durable, so that its ranks overwrite them. A killed agent may
    /// leave an image as sealed although the store has its shard. It is not written again, so its rank would wait for
    /// the slot without end.
    pub(super) fn mark_durable(&self, job: &JobId, committed: (Generation, Step)) {
        for place in self.of(job) {
            let arena = &place.arena;
            let images = arena.sealed_images();
            let of = |image: &&SealedImage<'_>| (image.index().generation, image.index().step) == committed;
            for image in images.iter().filter(of) {
                if arena.begin_write(image.slot(), committed.0).unwrap_or(false) {
                    let _ = arena.make_durable(image.slot(), committed.0);
                }
            }
        }
    }

    /// Frees a slot after an image became durable, if the arena has no empty slot: releases the oldest image that is
    /// neither this one nor committed. Of attempts that were never committed (for example during a full disk) only the
    /// newest is worth its memory, and without a free slot no further checkpoint would be possible.
    ///
    /// With two slots nothing is left to release, and the next save takes that of the commit: memory then has the newest
    /// two saves. Each is on disk here, and the commit that is still due will be of one of them, so these are the images
    /// of the next restore. The commit itself is on disk on every node.
    pub(super) fn make_room(arena: &Arena, newest: (Generation, Step), kept: Option<(Generation, Step)>) {
        if !arena.empty_slots().is_empty() {
            return;
        }
        let name = |image: &SealedImage<'_>| (image.index().generation, image.index().step);
        let images = arena.sealed_images();
        let spare = images
            .iter()
            .filter(|image| name(image) < newest && Some(name(image)) != kept && !is_written(arena, image.slot()));
        if let Some(oldest) = spare.min_by_key(|image| name(image)) {
            let _ = arena.release(oldest.slot());
        }
    }

    /// Frees slots that older generations left half filled: their ranks are gone.
    pub(super) fn release_unsealed(&self, job: &JobId, generation: Generation) {
        // The reader of a windowed arena frees its slots itself.
        let held = |place: &Arc<RankArena>| !place.arena.geometry().is_windowed();
        for place in self.of(job).into_iter().filter(held) {
            let arena = &place.arena;
            for slot in 0..arena.geometry().slots {
                let (state, of) = arena.slot(slot).unwrap_or((SlotState::Empty, generation));
                let left = state != SlotState::Empty && !state.is_image();
                // An invalid slot state comes from a rank that overwrote the header; the slot's content is lost. A slot that a
                // thread of this agent writes is released by that thread.
                if (state == SlotState::Broken || left && of < generation) && !arena.is_restoring(slot) {
                    let _ = arena.release(slot);
                }
            }
        }
    }

    pub(super) fn forget(&self, job: &JobId) {
        self.lock().remove(job);
    }
}

/// Returns true if the image in a slot is being written to disk; the writer frees it afterwards.
fn is_written(arena: &Arena, slot: u32) -> bool {
    arena.slot(slot).is_ok_and(|(state, _)| state == SlotState::Writing)
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::arena::SaveRequest;
    use rankguard_checkpoint::format::{Dtype, TensorBox};
    use rankguard_model::{NodeId, Rank};

    use super::*;
    use crate::settings::AgentSettings;

    fn arenas() -> ArenaTable {
        let settings = AgentSettings::new(NodeId::from("n1"), "", "/nonexistent");
        ArenaTable::new(ArenaKeeper::find(&settings).0)
    }

    /// Fills the lowest empty slot with an image of this step.
    fn fill(arena: &Arena, step: u64) {
        let job = JobId::from("train");
        let of = SaveRequest::new(&job, Step(step), Generation(1), Rank(0), 1);
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
        let arena = Arena::create("test", 3, 4096).expect("memory for three small slots");
        for step in [10, 20, 30] {
            fill(&arena, step);
        }
        let at = |step| (Generation(1), Step(step));
        ArenaTable::make_room(&arena, at(30), Some(at(10)));
        assert_eq!(steps(&arena), [10, 30]);
        ArenaTable::make_room(&arena, at(30), Some(at(10)));
        assert_eq!(steps(&arena), [10, 30], "with a free slot nothing goes");
        fill(&arena, 40);
        ArenaTable::make_room(&arena, at(40), None);
        assert_eq!(steps(&arena), [30, 40], "without a commit the oldest goes");
    }

    /// Two slots: the image of a void attempt gives way, and the next save leaves that of the commit.
    #[test]
    fn an_attempt_that_is_never_committed_gives_way_to_the_image_of_the_commit() {
        let arenas = arenas();
        let job = JobId::from("train");
        let request = ArenaRequest {
            slots: 2,
            ..asked(&job, 0, 4096)
        };
        let given = arenas.arena_for(request, |_| Ok(()));
        let place = given.expect("memory for two small slots");
        let first = Generation(1);
        for step in [10, 20] {
            fill(&place.arena, step);
            let slot = place
                .arena
                .sealed_images()
                .iter()
                .map(SealedImage::slot)
                .max()
                .expect("an image");
            assert!(place.arena.begin_write(slot, first).expect("a slot"));
            arenas.release_durable(&job, (first, Step(step)));
            assert_eq!(steps(&place.arena).last(), Some(&step), "it is being written");
            assert!(place.arena.make_durable(slot, first).expect("a slot"));
        }
        arenas.release_durable(&job, (Generation(2), Step(20)));
        assert_eq!(steps(&place.arena), [10, 20], "it is of another generation");
        arenas.release_durable(&job, (first, Step(20)));
        fill(&place.arena, 30);
        assert_eq!(steps(&place.arena), [10, 30]);
    }

    fn asked(job: &JobId, local_rank: u32, image_bytes: u64) -> ArenaRequest<'_> {
        const fn slot(local_rank: u32) -> RankSlot {
            RankSlot {
                rank: Rank(local_rank),
                local_rank,
            }
        }
        const RANKS: [RankSlot; 3] = [slot(0), slot(1), slot(2)];
        ArenaRequest {
            job,
            generation: Generation(1),
            local_rank,
            ranks: &RANKS,
            image_bytes,
            headroom_bytes: 0,
            meta_bytes: 0,
            slots: 1,
            window: None,
        }
    }

    #[test]
    fn a_window_takes_its_own_memory_and_is_given_again_when_nothing_passes() {
        let arenas = arenas();
        let job = JobId::from("train");
        let wanted = |window| ArenaRequest {
            window,
            ..asked(&job, 0, 8 << 20)
        };
        let mut found = Vec::new();
        let mut give = |window| {
            let admit = |state| {
                found.push(state);
                Ok(())
            };
            arenas
                .arena_for(wanted(window), admit)
                .expect("memory for a small arena")
        };
        let first = give(Some(1 << 20));
        assert!(Arc::ptr_eq(&first, &give(Some(2 << 20))), "it is no larger than that");
        let restored = first.arena.begin_restore(0, Generation(1));
        restored.expect("the window is empty");
        assert!(!Arc::ptr_eq(&first, &give(Some(1 << 20))), "something passes");
        assert!(!give(None).arena.geometry().is_windowed());
        // The other two ranks of the node will ask for theirs.
        assert_eq!(found, [3 << 20, 3 << 20, 3 * (8 << 20)]);
        let refused = arenas.arena_for(wanted(Some(1000)), |_| Ok(())).expect_err("too small");
        assert!(
            refused.to_string().contains("give it 262144 bytes or more"),
            "{refused}"
        );
    }

    #[test]
    fn the_first_rank_answers_for_the_memory_of_all_that_will_ask() {
        let arenas = arenas();
        let job = JobId::from("train");
        let mut found = Vec::new();
        for (local_rank, bytes) in [(0, 4096), (0, 4096), (1, 4096), (2, 8192)] {
            let mut admit = |state| {
                found.push(state);
                Ok(())
            };
            arenas
                .arena_for(asked(&job, local_rank, bytes), &mut admit)
                .expect("memory for a small arena");
        }
        // The second call took the arena that was there; none of the three is large enough for the last.
        assert_eq!(found, [3 * 4096, 2 * 4096, 3 * 8192]);
        let refused = arenas.arena_for(asked(&job, 1, 1 << 20), |_| Err(RankServiceError::NoArena));
        assert!(refused.is_err());
        assert_eq!(arenas.of(&job).len(), 3, "what was there is untouched");
    }

    /// A killed agent leaves the image of a committed checkpoint as sealed.
    #[test]
    fn the_image_of_a_committed_checkpoint_is_overwritten_by_the_next_generation() {
        let arenas = arenas();
        let job = JobId::from("train");
        let place = arenas
            .arena_for(asked(&job, 0, 4096), |_| Ok(()))
            .expect("memory for a small arena");
        fill(&place.arena, 10);
        assert_eq!(place.arena.slot_to_fill(None), None, "it is not written yet");
        arenas.mark_durable(&job, (Generation(1), Step(9)));
        assert_eq!(place.arena.slot_to_fill(None), None, "another checkpoint is committed");
        arenas.mark_durable(&job, (Generation(1), Step(10)));
        assert_eq!(place.arena.slot_to_fill(None), Some(0));
        assert_eq!(steps(&place.arena), [10], "until then it is restored from");
    }

    #[test]
    fn an_image_on_its_way_to_disk_is_not_taken_from_under_its_writer() {
        let arenas = arenas();
        let job = JobId::from("train");
        let place = arenas
            .arena_for(asked(&job, 0, 4096), |_| Ok(()))
            .expect("memory for a small arena");
        fill(&place.arena, 10);
        assert!(place.arena.begin_write(0, Generation(1)).expect("slot 0"));
        arenas.release(&job, |_| true);
        assert_eq!(steps(&place.arena), [10]);
        assert!(place.arena.make_durable(0, Generation(1)).expect("slot 0"));
        arenas.release(&job, |_| true);
        assert!(steps(&place.arena).is_empty());
    }

    /// A restore can wait for a rank that has died, and end after the next generation began.
    #[test]
    fn rg_3_a_restore_of_an_earlier_generation_takes_no_slot_and_keeps_none() {
        let arenas = arenas();
        let job = JobId::from("train");
        let place = arenas
            .arena_for(asked(&job, 0, 4096), |_| Ok(()))
            .expect("memory for a small arena");
        let arena = &place.arena;
        let (first, second) = (Generation(1), Generation(2));
        let restored = arena.begin_restore(0, first).expect("the slot is empty");
        arena.raise_fence(second);
        arenas.release_unsealed(&job, second);
        assert!(arena.empty_slots().is_empty(), "a thread writes into it");
        drop(restored);
        arena.release_restored(0, first).expect("slot 0");
        assert_eq!(arena.empty_slots(), [0]);
        let refused = arena.begin_restore(0, first).expect_err("generation 2 has begun");
        assert!(matches!(refused, ArenaError::Fenced { .. }), "{refused}");
        assert_eq!(arena.empty_slots(), [0]);
        drop(arena.begin_restore(0, second).expect("the slot is empty"));
        arena.release_restored(0, first).expect("slot 0");
        assert!(arena.empty_slots().is_empty(), "it is of another generation");
        arenas.release_unsealed(&job, Generation(3));
        assert_eq!(arena.empty_slots(), [0], "no rank copied it out");
    }
}
