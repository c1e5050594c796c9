//! Where one rank is served: its arena, its seals, its restore.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rankguard_checkpoint::arena::{ArenaError, RestoredSlot};
use rankguard_checkpoint::format::{CheckpointId, TensorBox};
use rankguard_checkpoint::restore::{Request, RestoreError, assemble_many};
use rankguard_checkpoint::source::{ArenaSource, ChunkSource};
use rankguard_checkpoint::{Arena, Checkpoint, Store, StoreError};
use rankguard_model::{Body, Launch, Rank, RankRef, RestoreBytes, RestorePoint, Role, Source, Step};

use super::Checkpoints;
use super::arenas::{Arenas, Asked, Place};
use super::joint::{Wish, overlap};
use super::peer::PeerSource;
use super::persist::{Errand, Void};
use crate::collectors::mark;
use crate::settings::ImageSettings;
use crate::sighting::Sighting;

/// Serves one rank.
#[derive(Debug)]
pub(crate) struct Desk {
    all: Arc<Checkpoints>,
    rank: RankRef,
    local_rank: u32,
    launch: Arc<Launch>,
    place: Mutex<Option<Arc<Place>>>,
}

/// What was wanted, in a slot of the rank's arena or of one of its own.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    pub(crate) states: Vec<(Rank, String)>,
    /// Where each box begins; back to back when empty.
    pub(crate) places: Vec<u64>,
    /// The slot is a sealed image as it was saved.
    pub(crate) stays: bool,
    /// The memory file, where it is not the rank's arena.
    pub(crate) own: Option<OwnedFd>,
}

/// Where wanted boxes lie.
type Found = (u32, Vec<u64>);

/// Why a rank's wish cannot be met.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    #[error("make the arena: {0}")]
    Arena(#[from] ArenaError),
    #[error("the rank has no arena; it must ask for one first")]
    NoArena,
    #[error("{0}")]
    Memory(String),
    #[error("make memory for the restored image: {0}")]
    Own(#[source] std::io::Error),
    #[error("read the checkpoint: {0}")]
    Store(#[from] StoreError),
    #[error("restore: {0}")]
    Restore(#[from] RestoreError),
}

impl DeskError {
    /// Whether the checkpoint itself is at fault, so that nobody should be sent to it again.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Arena(_) | Self::NoArena | Self::Memory(_) | Self::Own(_) => false,
            Self::Store(problem) => !problem.is_retryable(),
            Self::Restore(problem) => !matches!(problem, RestoreError::Destination { .. }),
        }
    }
}

impl Desk {
    pub(super) fn new(all: Arc<Checkpoints>, rank: RankRef, local_rank: u32, launch: Arc<Launch>) -> Self {
        Self {
            all,
            rank,
            local_rank,
            launch,
            place: Mutex::new(None),
        }
    }

    /// The arena for images of this size, and how it is to be used.
    pub(crate) fn arena(&self, image_bytes: u64) -> Result<(Arc<Place>, ImageSettings), DeskError> {
        let images = self.all.images;
        let asked = Asked {
            job: &self.rank.job,
            generation: self.rank.generation,
            local_rank: self.local_rank,
            ranks: &self.launch.ranks,
            image_bytes,
            slots: images.slots,
        };
        let place = self
            .all
            .arenas
            .give(asked, |state| self.all.admit(state, images.slots))?;
        *self.place.lock().expect("no holder of the arena panics") = Some(place.clone());
        Ok((place, images))
    }

    fn current(&self) -> Option<Arc<Place>> {
        self.place.lock().expect("no holder of the arena panics").clone()
    }

    /// The rank sealed a slot: it trains on, and the image goes to disk.
    pub(crate) fn sealed(&self, slot: u32, step: Step, stall_ms: f64) {
        let Some(place) = self.current() else { return };
        let entity = self.all.roster.entity(&self.rank);
        let bytes = place
            .arena
            .sealed(slot)
            .map(|image| image.index().image_bytes)
            .unwrap_or_default();
        let seal = Body::ShardSealed { step, stall_ms, bytes };
        self.all
            .intake
            .push(Sighting::now(Source::Checkpoint, entity.clone(), seal));
        let (intake, store, rank) = (
            self.all.intake.clone(),
            self.launch.checkpoint_store.clone(),
            self.rank.clone(),
        );
        let (world_size, all) = (self.launch.world_size, self.all.clone());
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
            let (body, marks) = match errand.run() {
                Ok(seal) => {
                    let (own, kept) = ((rank.generation, step), all.kept(&rank.job));
                    // A checkpoint that is newer was committed meanwhile.
                    let _ = match kept.is_some_and(|kept| kept > own) {
                        true => place.arena.release(slot),
                        false => place.arena.make_durable(slot, rank.generation).map(|_| ()),
                    };
                    Arenas::make_room(&place.arena, own, kept);
                    (Body::ShardDurable { seal }, Vec::new())
                }
                Err(Void { reason, class, gone }) => {
                    if !gone {
                        // The attempt is void; the slot serves the next one.
                        let _ = place.arena.release(slot);
                    }
                    let marks = class.map(|class| mark(class, Role::Root, 0.95, "checkpoint-store"));
                    (Body::ShardFailed { step, reason }, marks.into_iter().collect())
                }
            };
            drop(turn);
            intake.push(Sighting::now(Source::Checkpoint, entity, body).marked(marks).urgent());
        });
    }

    /// Brings the wanted boxes of a committed checkpoint from the nearest tiers.
    pub(crate) fn restore(&self, point: &RestorePoint, wanted: &[TensorBox]) -> Result<Restored, DeskError> {
        let started = Instant::now();
        let place = self.current().ok_or(DeskError::NoArena)?;
        let store = Store::at(&self.launch.checkpoint_store);
        let id = CheckpointId {
            step: point.step,
            generation: point.generation,
        };
        // Retention takes nothing of it away meanwhile.
        let _lease = store.lease(&self.rank.job, id)?;
        let checkpoint = store.load(&self.rank.job, id)?;
        let bytes = wanted.iter().filter_map(TensorBox::bytes).sum();
        let mut restored = Restored {
            slot: 0,
            bytes,
            states: Vec::new(),
            places: Vec::new(),
            stays: false,
            own: None,
        };
        let from = match in_place(&place.arena, &checkpoint, wanted) {
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
                let fetch = |wishes: &[Wish]| self.fetch(&checkpoint, wishes, &store);
                if overlap(&checkpoint, wanted, ranks) {
                    let group = (self.rank.job.clone(), self.rank.generation);
                    self.all.joint.serve(&group, ranks, &wish, fetch)?
                } else {
                    fetch(&[wish])?
                }
            }
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
        let states = checkpoint.indexes.iter();
        restored.states = states.map(|index| (index.rank, index.state.to_string())).collect();
        Ok(restored)
    }

    /// Fills slots with the wanted boxes, back to back. What several of them want is read once.
    fn fetch(&self, checkpoint: &Checkpoint, wishes: &[Wish], store: &Store) -> Result<RestoreBytes, DeskError> {
        let places = self.all.arenas.of(&self.rank.job);
        let here = ArenaSource::new(places.iter().map(|place| &*place.arena));
        let peers = PeerSource::all(&self.launch.peers, &self.all.runtime, self.all.peer_fetch);
        let mut sources: Vec<&dyn ChunkSource> = vec![&here];
        sources.extend(peers.iter().map(|peer| peer as &dyn ChunkSource));
        sources.push(store);
        let far = self.all.mirror.as_ref().map(|mirror| mirror.source());
        sources.extend(far.iter().map(|far| far as &dyn ChunkSource));
        let targets = wishes
            .iter()
            .map(|wish| wish.arena.begin_restore(wish.slot, self.rank.generation));
        let mut targets: Vec<RestoredSlot<'_>> = targets.collect::<Result<_, _>>()?;
        let mut requests: Vec<Request<'_>> = wishes
            .iter()
            .zip(&mut targets)
            .map(|(wish, target)| Request {
                wanted: &wish.wanted,
                out: target,
            })
            .collect();
        let report =
            assemble_many(&checkpoint.manifest, &checkpoint.indexes, &mut requests, &sources).inspect_err(|_| {
                for wish in wishes {
                    let _ = wish.arena.release(wish.slot);
                }
            })?;
        for repair in &report.repairs {
            tracing::warn!(repair, "a damaged copy of a chunk was passed over");
            self.all.intake.gap(Source::Checkpoint, repair.clone(), None);
        }
        Ok(report.bytes)
    }
}

/// The sealed image of this very checkpoint in which all wanted boxes lie as they were saved, if there is one and every
/// byte of it is what the manifest vouches for: the ranks that come back to their places find their state there.
fn in_place(arena: &Arena, checkpoint: &Checkpoint, wanted: &[TensorBox]) -> Option<Found> {
    if wanted.is_empty() {
        return None;
    }
    let images = arena.sealed_images();
    let image = images.iter().find_map(|image| {
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
