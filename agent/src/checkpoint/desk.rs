//! Where one rank is served: its arena, its seals, its restore.

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
use rankguard_model::{Body, CommitLevel, Launch, Rank, RankRef, RestoreBytes, RestorePoint, Source, Step};
use rankguard_proto::v1;

use super::Checkpoints;
use super::arenas::{Arenas, Asked, Place};
use super::error::DeskError;
use super::fetch::{Loaded, id_of};
use super::joint::{Wish, overlap};
use super::persist::{Errand, Then, told};
use crate::settings::ImageSettings;
use crate::sighting::Sighting;

/// Serves one rank.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(super) all: Arc<Checkpoints>,
    pub(super) rank: RankRef,
    local_rank: u32,
    pub(super) launch: Arc<Launch>,
    place: Mutex<Option<Arc<Place>>>,
    /// The rank's connection has ended.
    pub(super) gone: Arc<AtomicBool>,
    /// The checkpoint that the rank has looked at, for the restore that follows.
    looked: Mutex<Option<Loaded>>,
}

/// What was wanted, in a slot of the rank's arena or of one of its own.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    pub(crate) states: States,
    /// Where each box begins; back to back when empty.
    pub(crate) places: Vec<u64>,
    /// The slot is a sealed image as it was saved.
    pub(crate) stays: bool,
    /// The memory file, where it is not the rank's arena.
    pub(crate) own: Option<OwnedFd>,
    /// Another part follows.
    pub(crate) more: bool,
    /// Tensors that differ from rank to rank, and what differs.
    pub(crate) differing: Vec<(String, String)>,
    /// Names of all tensors, where the states have no schema.
    pub(crate) names: Vec<String>,
}

impl Restored {
    /// What is known of a checkpoint from its indexes.
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

/// The small state of every shard, by rank.
type States = Vec<(Rank, String)>;

/// Tells the rank of what is there for it.
pub(crate) type Hand<'a> = &'a mut dyn FnMut(Restored) -> io::Result<()>;

/// Where wanted boxes lie.
type Found = (u32, Vec<u64>);

impl Desk {
    pub(super) fn new(all: Arc<Checkpoints>, rank: RankRef, local_rank: u32, launch: Arc<Launch>) -> Self {
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

    /// The arena for images of this size, and how it is to be used.
    pub(crate) fn arena(&self, wanted: &v1::ArenaWanted) -> Result<(Arc<Place>, ImageSettings), DeskError> {
        if self.launch.checkpoint_store.is_empty() {
            return Err(DeskError::NoStore);
        }
        let images = self.all.images;
        let asked = Asked {
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
            .give(asked, |state| self.all.admit_arenas(state, &asked))?;
        *self.place.lock().expect("no holder of the arena panics") = Some(place.clone());
        Ok((place, images))
    }

    pub(super) fn current(&self) -> Option<Arc<Place>> {
        self.place.lock().expect("no holder of the arena panics").clone()
    }

    /// The rank sealed a slot: it trains on, and the image goes to disk.
    pub(crate) fn sealed(&self, sealed: &v1::SlotSealed) {
        let Some(place) = self.current() else { return };
        let entity = self.all.roster.entity(&self.rank);
        let v1::SlotSealed { slot, stall_ms, .. } = *sealed;
        let step = Step(sealed.step);
        let held = place.arena.sealed(slot);
        let bytes = held.map_or(sealed.bytes, |image| image.index().image_bytes);
        let seal = Body::ShardSealed { step, stall_ms, bytes };
        self.all
            .intake
            .push(Sighting::now(Source::Checkpoint, entity.clone(), seal));
        if place.arena.geometry().is_windowed() {
            // It has passed already, or all but the end of it.
            return;
        }
        let (intake, store, rank) = (
            self.all.intake.clone(),
            self.launch.checkpoint_store.clone(),
            self.rank.clone(),
        );
        let (world_size, all) = (self.launch.world_size, self.all.clone());
        let copying = all.copy_to_peers(&self.launch, &place, slot, &rank);
        let replicated = self.launch.tiers.commit == CommitLevel::Replicated;
        // The wait for the disk is nobody's but its own: the rank trains on and the session hears on.
        self.all.runtime.spawn_blocking(move || {
            let turn = place.turn.lock().expect("no writer panics");
            let errand = Errand {
                place: &place,
                slot,
                step,
                rank: &rank,
                world_size,
                store: &store,
                kept: all
                    .kept(&rank.job)
                    .map(|(generation, step)| CheckpointId { step, generation }),
                dedupe: &all.dedupe,
            };
            let ended = in_background("shard-writer", || errand.run());
            if matches!(&ended, Err(void) if void.then == Then::Stays) {
                return;
            }
            let mut copying = copying;
            let mut wait_for_copies = || {
                if let Some(copying) = copying.take() {
                    let _ = all.runtime.block_on(copying);
                }
            };
            // The shard is whole in the store: whoever adopts the work of a lost agent finds it there meanwhile.
            if replicated && ended.is_ok() {
                wait_for_copies();
            }
            if let Err(void) = &ended {
                all.roster.report_void_shard(&rank, step, &void.reason);
            }
            intake.push(told(entity, step, &ended));
            // The slot serves the next image only when nobody copies from it any more.
            wait_for_copies();
            match ended {
                Ok(_) => {
                    let (own, kept) = ((rank.generation, step), all.kept(&rank.job));
                    // A checkpoint that is newer was committed meanwhile.
                    let _ = match kept.is_some_and(|kept| kept > own) {
                        true => place.arena.release(slot),
                        false => place.arena.make_durable(slot, rank.generation).map(|_| ()),
                    };
                    Arenas::make_room(&place.arena, own, kept);
                }
                // The attempt is void; the slot serves the next one.
                Err(void) if void.then == Then::Goes => drop(place.arena.release(slot)),
                Err(_) => {}
            }
            drop(turn);
        });
    }

    /// Brings the wanted boxes of a committed checkpoint from the nearest tiers, and hands them to the rank: all at once, or
    /// one part after the other through a window.
    pub(crate) fn restore(&self, point: &RestorePoint, wanted: &[TensorBox], hand: Hand<'_>) -> Result<(), DeskError> {
        let started = Instant::now();
        let place = self.current().ok_or(DeskError::NoArena)?;
        let until = started + self.all.restore_retry;
        let (lease, checkpoint) = match self.take_looked(id_of(point)) {
            Some(loaded) => loaded,
            None => self.load_until(&place, id_of(point), until)?,
        };
        let described = Restored::described(&checkpoint);
        let from = if wanted.is_empty() {
            let stays = true;
            hand(Restored { stays, ..described }).map_err(DeskError::Hand)?;
            if checkpoint.manifest.bytes() > 0 {
                // The rank looks at the states before it asks for tensors.
                *self.looked.lock().expect("no holder of the checkpoint panics") = Some((lease, checkpoint));
                return Ok(());
            }
            RestoreBytes::default()
        } else if place.arena.geometry().is_windowed() {
            self.restore_parts(&place, &checkpoint, wanted, described, until, hand)?
        } else {
            self.restore_whole(&place, &checkpoint, wanted, described, until, hand)?
        };
        let body = Body::Restored {
            step: point.step,
            from,
            took_ms: started.elapsed().as_secs_f64() * 1e3,
        };
        let entity = self.all.roster.entity(&self.rank);
        self.all
            .intake
            .push(Sighting::now(Source::Checkpoint, entity, body).urgent());
        Ok(())
    }

    fn restore_whole(
        &self,
        place: &Place,
        checkpoint: &Checkpoint,
        wanted: &[TensorBox],
        described: Restored,
        until: Instant,
        hand: Hand<'_>,
    ) -> Result<RestoreBytes, DeskError> {
        let bytes = wanted.iter().filter_map(TensorBox::bytes).sum();
        let reader = self.reader(checkpoint);
        let differs = |boxed: &TensorBox| described.differing.iter().any(|(name, _)| *name == boxed.name);
        // Of tensors that differ from rank to rank only the reader's own image is right.
        let only = wanted.iter().any(differs).then_some(reader);
        let mut restored = Restored { bytes, ..described };
        let from = match in_place(&place.arena, checkpoint, wanted, only) {
            Some((slot, places)) => {
                (restored.slot, restored.places, restored.stays) = (slot, places, true);
                RestoreBytes {
                    arena: bytes,
                    ..RestoreBytes::default()
                }
            }
            None => {
                let mut wish = Wish {
                    wanted: wanted.into(),
                    arena: place.arena.clone(),
                    slot: 0,
                    reader,
                };
                match place.arena.empty_slots().first() {
                    Some(slot) => (wish.slot, restored.slot) = (*slot, *slot),
                    // Every slot holds an image that this restore may need: memory of its own until the rank has copied.
                    None => {
                        self.all.admit(bytes, 1)?;
                        wish.arena = Arc::new(Arena::create("rankguard-restore", 1, bytes)?);
                        restored.own = Some(wish.arena.as_fd().try_clone_to_owned().map_err(DeskError::Own)?);
                    }
                }
                let ranks = self.launch.ranks.len();
                let fetch = |wishes: &[Wish]| self.fetch_until(place, checkpoint, wishes, until);
                if overlap(checkpoint, wanted, ranks) {
                    let group = (self.rank.job.clone(), self.rank.generation);
                    self.all.joint.serve(&group, ranks, &wish, fetch)?
                } else {
                    fetch(&[wish])?
                }
            }
        };
        hand(restored).map_err(DeskError::Hand)?;
        Ok(from)
    }

    /// This rank, where as many ranks saved the checkpoint as there are now.
    pub(super) fn reader(&self, checkpoint: &Checkpoint) -> Option<Rank> {
        (checkpoint.manifest.world_size == self.launch.world_size).then_some(self.rank.rank)
    }

    /// The checkpoint that the rank looked at before, once.
    fn take_looked(&self, id: CheckpointId) -> Option<Loaded> {
        let looked = self.looked.lock().expect("no holder of the checkpoint panics").take();
        looked.filter(|(_, checkpoint)| checkpoint.manifest.id() == id)
    }
}

/// The sealed image of this very checkpoint in which all wanted boxes lie as they were saved, if there is one and every
/// byte of it is what the manifest vouches for: the ranks that come back to their places find their state there. With `only`
/// the image is that of this rank.
fn in_place(arena: &Arena, checkpoint: &Checkpoint, wanted: &[TensorBox], only: Option<Option<Rank>>) -> Option<Found> {
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
