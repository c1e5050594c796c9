//! Checkpoint service of one rank: its arena, its seals, its restore.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rankguard_checkpoint::arena::SealedImage;
use rankguard_checkpoint::format::{CheckpointId, TensorBox};
use rankguard_checkpoint::{Arena, Checkpoint, in_background};
use rankguard_model::{
    CommitLevel, EvidenceBody, EvidenceSource, LaunchOrder, Rank, RankRef, RestoreBytes, RestorePoint, Step,
};
use rankguard_proto::v1;

use super::CheckpointService;
use super::arenas::{ArenaRequest, ArenaTable, RankArena};
use super::error::RankServiceError;
use super::fetch::{LeasedCheckpoint, id_of};
use super::joint::{RestoreRequest, overlap};
use super::persist::{ShardWrite, SlotDisposition, shard_evidence};
use crate::pending_evidence::PendingEvidence;
use crate::settings::ImageSettings;

/// Checkpoint service of one rank.
#[derive(Debug)]
pub(crate) struct RankService {
    pub(super) all: Arc<CheckpointService>,
    pub(super) rank: RankRef,
    local_rank: u32,
    pub(super) launch: Arc<LaunchOrder>,
    place: Mutex<Option<Arc<RankArena>>>,
    /// True once the rank's connection has ended.
    pub(super) gone: Arc<AtomicBool>,
    /// Checkpoint that the rank has inspected, retained for the restore that follows.
    looked: Mutex<Option<LeasedCheckpoint>>,
}

/// Restored tensors, in a slot of the rank's arena or of an arena of their own.
#[derive(Debug, Default)]
pub(crate) struct RestoredPart {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    pub(crate) states: RankStates,
    /// Offset of each box; empty if they are back to back.
    pub(crate) places: Vec<u64>,
    /// True if the slot is a sealed image as it was saved.
    pub(crate) stays: bool,
    /// Memory file, if it is not the rank's arena.
    pub(crate) own: Option<OwnedFd>,
    /// True if another part follows.
    pub(crate) more: bool,
    /// Tensors that differ from rank to rank, each with its difference.
    pub(crate) differing: Vec<(String, String)>,
    /// Names of all tensors, if the states have no schema.
    pub(crate) names: Vec<String>,
}

impl RestoredPart {
    /// Returns the facts about a checkpoint that its indexes hold.
    fn described(checkpoint: &Checkpoint) -> Self {
        let states = checkpoint.indexes.iter();
        Self {
            states: states.map(|index| (index.rank, index.state.to_string())).collect(),
            differing: checkpoint.differing(),
            names: checkpoint.names_without_schema(),
            ..Self::default()
        }
    }
}

/// Small (non-tensor) state of every shard, by rank.
type RankStates = Vec<(Rank, String)>;

/// Callback that sends a restored part to the rank.
pub(crate) type PartSink<'a> = &'a mut dyn FnMut(RestoredPart) -> io::Result<()>;

/// Slot and offsets of the wanted boxes.
type SlotOffsets = (u32, Vec<u64>);

impl RankService {
    pub(super) fn new(all: Arc<CheckpointService>, rank: RankRef, local_rank: u32, launch: Arc<LaunchOrder>) -> Self {
        Self {
            all,
            rank,
            local_rank,
            launch,
            place: Mutex::new(None),
            gone: Arc::default(),
            looked: Mutex::default(),
        }
    }

    /// Returns an arena for images of this size, and the image settings.
    pub(crate) fn arena(&self, wanted: &v1::ArenaWanted) -> Result<(Arc<RankArena>, ImageSettings), RankServiceError> {
        if self.launch.checkpoint_store.is_empty() {
            return Err(RankServiceError::NoStore);
        }
        let images = self.all.images;
        let asked = ArenaRequest {
            job: &self.rank.job,
            generation: self.rank.generation,
            local_rank: self.local_rank,
            ranks: &self.launch.ranks,
            image_bytes: wanted.image_bytes,
            headroom_bytes: wanted.headroom_bytes,
            meta_bytes: wanted.meta_bytes,
            slots: self.all.slots(&self.launch),
            window: self.launch.tiers.window.map(NonZero::get),
        };
        let place = self
            .all
            .arenas
            .arena_for(asked, |state| self.all.admit_arenas(state, &asked))?;
        *self.place.lock().expect("no holder of the arena panics") = Some(place.clone());
        Ok((place, images))
    }

    pub(super) fn current(&self) -> Option<Arc<RankArena>> {
        self.place.lock().expect("no holder of the arena panics").clone()
    }

    /// Handles a sealed slot: the rank continues training, and the image is written to disk in the background.
    pub(crate) fn sealed(&self, sealed: &v1::SlotSealed) {
        let Some(place) = self.current() else { return };
        let entity = self.all.roster.entity(&self.rank);
        let v1::SlotSealed { slot, stall_ms, .. } = *sealed;
        let step = Step(sealed.step);
        let held = place.arena.sealed(slot);
        let bytes = held.map_or(sealed.bytes, |image| image.index().image_bytes);
        let seal = EvidenceBody::ShardSealed { step, stall_ms, bytes };
        self.all
            .intake
            .push(PendingEvidence::now(EvidenceSource::Checkpoint, entity.clone(), seal));
        if place.arena.geometry().is_windowed() {
            // The image has been streamed already, except for its end.
            return;
        }
        let intake = self.all.intake.clone();
        let store = self.launch.checkpoint_store.clone();
        let rank = self.rank.clone();
        let world_size = self.launch.world_size;
        let all = self.all.clone();
        let copying = all.copy_to_peers(&self.launch, &place, slot, &rank);
        let replicated = self.launch.tiers.commit == CommitLevel::Replicated;
        // Only this thread waits for the disk: the rank trains on and the session reads on.
        self.all.runtime.spawn_blocking(move || {
            let turn = place.turn.lock().expect("no writer panics");
            let errand = ShardWrite {
                place: &place,
                slot,
                step,
                rank: &rank,
                world_size,
                store: &store,
                kept: all
                    .newest_commit(&rank.job)
                    .map(|(generation, step)| CheckpointId { step, generation }),
                dedupe: &all.dedupe,
            };
            let ended = in_background("shard-writer", || errand.run());
            if matches!(&ended, Err(void) if void.then == SlotDisposition::Stays) {
                return;
            }
            let mut copying = copying;
            let mut wait_for_copies = || {
                if let Some(copying) = copying.take() {
                    let _ = all.runtime.block_on(copying);
                }
            };
            // The shard is complete in the store: an agent that adopts the work of a lost agent finds it there
            // meanwhile.
            if replicated && ended.is_ok() {
                wait_for_copies();
            }
            if let Err(void) = &ended {
                all.roster.report_void_shard(&rank, step, &void.reason);
            }
            intake.push(shard_evidence(entity, step, &ended));
            // The slot is reused only when no peer copies from it any more.
            wait_for_copies();
            match ended {
                Ok(_) => {
                    let own = (rank.generation, step);
                    let kept = all.newest_commit(&rank.job);
                    // A newer checkpoint may have been committed meanwhile, or this one may be void.
                    let _ = if kept.is_some_and(|kept| kept > own) || all.is_void(&rank.job, own) {
                        place.arena.release(slot)
                    } else {
                        place.arena.make_durable(slot, rank.generation).map(|_| ())
                    };
                    ArenaTable::make_room(&place.arena, own, kept);
                }
                // The attempt is void; the slot is free for the next one.
                Err(void) if void.then == SlotDisposition::Goes => drop(place.arena.release(slot)),
                Err(_) => {}
            }
            drop(turn);
        });
    }

    /// Reads the wanted boxes of a committed checkpoint from the nearest tiers and sends them to the rank: all at
    /// once, or part by part through a window.
    pub(crate) fn restore(
        &self,
        point: &RestorePoint,
        wanted: &[TensorBox],
        hand: PartSink<'_>,
    ) -> Result<(), RankServiceError> {
        let started = Instant::now();
        let place = self.current().ok_or(RankServiceError::NoArena)?;
        let until = started + self.all.restore_retry;
        let (lease, checkpoint) = match self.take_looked(id_of(point)) {
            Some(loaded) => loaded,
            None => self.load_until(&place, id_of(point), until)?,
        };
        let described = RestoredPart::described(&checkpoint);
        let from = if wanted.is_empty() {
            let stays = true;
            hand(RestoredPart { stays, ..described }).map_err(RankServiceError::Hand)?;
            if checkpoint.manifest.bytes() > 0 {
                // The rank inspects the states before it requests tensors.
                *self.looked.lock().expect("no holder of the checkpoint panics") = Some((lease, checkpoint));
                return Ok(());
            }
            RestoreBytes::default()
        } else if place.arena.geometry().is_windowed() {
            self.restore_parts(&place, &checkpoint, wanted, described, until, hand)?
        } else {
            self.restore_whole(&place, &checkpoint, wanted, described, until, hand)?
        };
        let body = EvidenceBody::Restored {
            step: point.step,
            from,
            took_ms: started.elapsed().as_secs_f64() * 1e3,
        };
        let entity = self.all.roster.entity(&self.rank);
        self.all
            .intake
            .push(PendingEvidence::now(EvidenceSource::Checkpoint, entity, body).urgent());
        Ok(())
    }

    fn restore_whole(
        &self,
        place: &RankArena,
        checkpoint: &Checkpoint,
        wanted: &[TensorBox],
        described: RestoredPart,
        until: Instant,
        hand: PartSink<'_>,
    ) -> Result<RestoreBytes, RankServiceError> {
        let bytes = wanted.iter().filter_map(TensorBox::bytes).sum();
        let reader = self.reader(checkpoint);
        let differs = |boxed: &TensorBox| described.differing.iter().any(|(name, _)| *name == boxed.name);
        // For tensors that differ from rank to rank, only the reader's own image is correct.
        let only = wanted.iter().any(differs).then_some(reader);
        let mut restored = RestoredPart { bytes, ..described };
        let group = (self.rank.job.clone(), self.rank.generation);
        let from = match in_place(&place.arena, checkpoint, wanted, only) {
            Some((slot, places)) => {
                self.all.joint.needs_no_read(&group, self.rank.rank);
                (restored.slot, restored.places, restored.stays) = (slot, places, true);
                RestoreBytes {
                    arena: bytes,
                    ..RestoreBytes::default()
                }
            }
            None => {
                let mut wish = RestoreRequest {
                    wanted: wanted.into(),
                    arena: place.arena.clone(),
                    slot: 0,
                    reader,
                };
                match place.arena.empty_slots().first() {
                    Some(slot) => (wish.slot, restored.slot) = (*slot, *slot),
                    // Every slot holds an image that this restore may need, so it gets separate memory until the rank
                    // has copied.
                    None => {
                        self.all.admit(bytes, 1)?;
                        wish.arena = Arc::new(Arena::create("rankguard-restore", 1, bytes)?);
                        restored.own = Some(wish.arena.as_fd().try_clone_to_owned().map_err(RankServiceError::Own)?);
                    }
                }
                let ranks = self.launch.ranks.len();
                let fetch = |wishes: &[RestoreRequest]| self.fetch_until(place, checkpoint, wishes, until);
                if overlap(checkpoint, wanted, ranks) {
                    self.all.joint.serve(&group, ranks, &wish, fetch)?
                } else {
                    fetch(&[wish])?
                }
            }
        };
        let slot = (!restored.stays && restored.own.is_none()).then_some(restored.slot);
        hand(restored).map_err(|problem| {
            // The rank has gone, and the slot would stay in use until the next generation.
            if let Some(slot) = slot {
                let _ = place.arena.release_restored(slot, self.rank.generation);
            }
            RankServiceError::Hand(problem)
        })?;
        Ok(from)
    }

    /// Returns this rank if the checkpoint was saved by as many ranks as there are now.
    pub(super) fn reader(&self, checkpoint: &Checkpoint) -> Option<Rank> {
        (checkpoint.manifest.world_size == self.launch.world_size).then_some(self.rank.rank)
    }

    /// Takes the checkpoint that the rank inspected before, if it is `id`.
    fn take_looked(&self, id: CheckpointId) -> Option<LeasedCheckpoint> {
        let looked = self.looked.lock().expect("no holder of the checkpoint panics").take();
        looked.filter(|(_, checkpoint)| checkpoint.manifest.id() == id)
    }
}

/// Finds the sealed image of this checkpoint that holds all wanted boxes as they were saved and matches the manifest
/// in every byte: ranks that return to their nodes find their state there. With `only` the image must be that of this
/// rank.
fn in_place(
    arena: &Arena,
    checkpoint: &Checkpoint,
    wanted: &[TensorBox],
    only: Option<Option<Rank>>,
) -> Option<SlotOffsets> {
    let images = arena.sealed_images();
    let allowed = |image: &&SealedImage<'_>| only.is_none_or(|rank| rank == Some(image.index().rank));
    let image = images.iter().filter(allowed).find_map(|image| {
        let own = image.index();
        let vouched = checkpoint.indexes.iter().find(|index| index.rank == own.rank)?;
        let same = (own.id(), &own.job) == (vouched.id(), &vouched.job)
            && (own.chunk_bytes, &own.tensors, &own.chunks) == (vouched.chunk_bytes, &vouched.tensors, &vouched.chunks);
        let places: BTreeMap<&TensorBox, u64> = own.tensors.iter().map(|entry| (&entry.boxed, entry.at)).collect();
        let places: Option<Vec<u64>> = wanted.iter().map(|boxed| places.get(boxed).copied()).collect();
        places.filter(|_| same).map(|places| (image, places))
    });
    let (image, places) = image?;
    image.is_whole().then(|| (image.slot(), places))
}
