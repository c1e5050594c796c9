//! Where one rank is served: its arena, its seals, its restore.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use rankguard_checkpoint::arena::ArenaError;
use rankguard_checkpoint::format::{CheckpointId, TensorBox};
use rankguard_checkpoint::restore::{RestoreError, assemble_into};
use rankguard_checkpoint::source::{ArenaSource, ChunkSource};
use rankguard_checkpoint::{Arena, Store, StoreError};
use rankguard_model::{Body, Launch, Rank, RankRef, RestorePoint, Role, ShardSeal, Source, Step};

use super::Checkpoints;
use super::arenas::Arenas;
use super::peer::PeerSource;
use crate::collectors::mark;
use crate::sighting::Sighting;

/// Serves one rank.
#[derive(Debug)]
pub(crate) struct Desk {
    all: Arc<Checkpoints>,
    rank: RankRef,
    local_rank: u32,
    launch: Arc<Launch>,
    arena: Mutex<Option<Arc<Arena>>>,
}

/// A restored image in a slot of the rank's arena.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    pub(crate) states: Vec<(Rank, String)>,
}

/// Why a rank's wish cannot be met.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    #[error("make the arena: {0}")]
    Arena(#[from] ArenaError),
    #[error("the rank has no arena; it must ask for one first")]
    NoArena,
    #[error("the arena has no free slot for a restored image")]
    NoSlot,
    #[error("read the checkpoint: {0}")]
    Store(#[from] StoreError),
    #[error("restore: {0}")]
    Restore(#[from] RestoreError),
}

impl DeskError {
    /// Whether the checkpoint itself is at fault, so that nobody should be sent to it again.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Arena(_) | Self::NoArena | Self::NoSlot => false,
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
            arena: Mutex::new(None),
        }
    }

    /// The arena for images of this size.
    pub(crate) fn arena(&self, image_bytes: u64) -> Result<Arc<Arena>, DeskError> {
        let arena = self
            .all
            .arenas
            .give(&self.rank.job, self.rank.generation, self.local_rank, image_bytes)?;
        *self.arena.lock().expect("no holder of the arena panics") = Some(arena.clone());
        Ok(arena)
    }

    fn current(&self) -> Option<Arc<Arena>> {
        self.arena.lock().expect("no holder of the arena panics").clone()
    }

    /// The rank sealed a slot: it trains on, and the image goes to disk.
    pub(crate) fn sealed(&self, slot: u32, step: Step, stall_ms: f64) {
        let Some(arena) = self.current() else { return };
        let entity = self.all.roster.entity(&self.rank);
        let bytes = arena
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
            let (body, marks) = match persist(&arena, slot, step, &rank, world_size, &store) {
                Ok(seal) => {
                    Arenas::make_room(&arena, (rank.generation, step), all.kept(&rank.job));
                    (Body::ShardDurable { seal }, Vec::new())
                }
                Err(Void { reason, class }) => {
                    // The attempt is void; the slot serves the next one.
                    let _ = arena.release(slot);
                    let marks = class.map(|class| mark(class, Role::Root, 0.95, "checkpoint-store"));
                    (Body::ShardFailed { step, reason }, marks.into_iter().collect())
                }
            };
            intake.push(Sighting::now(Source::Checkpoint, entity, body).marked(marks).urgent());
        });
    }

    /// Brings the wanted boxes of a committed checkpoint from the nearest tiers.
    pub(crate) fn restore(&self, point: &RestorePoint, wanted: &[TensorBox]) -> Result<Restored, DeskError> {
        let started = Instant::now();
        let arena = self.current().ok_or(DeskError::NoArena)?;
        let job = &self.rank.job;
        let store = Store::at(&self.launch.checkpoint_store);
        let id = CheckpointId {
            step: point.step,
            generation: point.generation,
        };
        let checkpoint = store.load(job, id)?;
        let slot = *arena.empty_slots().first().ok_or(DeskError::NoSlot)?;
        let arenas = self.all.arenas.of(job);
        let here = ArenaSource::new(arenas.iter().map(Arc::as_ref));
        let peers = PeerSource::all(&self.launch.peers, &self.all.runtime, self.all.peer_fetch);
        let mut sources: Vec<&dyn ChunkSource> = vec![&here];
        sources.extend(peers.iter().map(|peer| peer as &dyn ChunkSource));
        sources.push(&store);
        let mut target = arena.begin_restore(slot, self.rank.generation)?;
        let report = assemble_into(&checkpoint.manifest, &checkpoint.indexes, wanted, &sources, &mut target)
            .inspect_err(|_| {
                let _ = arena.release(slot);
            })?;
        for repair in &report.repairs {
            tracing::warn!(repair, "a damaged copy of a chunk was passed over");
            self.all.intake.gap(Source::Checkpoint, repair.clone(), None);
        }
        let body = Body::Restored {
            step: point.step,
            from: report.bytes,
            took_ms: started.elapsed().as_secs_f64() * 1e3,
        };
        let entity = self.all.roster.entity(&self.rank);
        self.all
            .intake
            .push(Sighting::now(Source::Checkpoint, entity, body).urgent());
        Ok(Restored {
            slot,
            bytes: wanted.iter().filter_map(TensorBox::bytes).sum(),
            states: checkpoint
                .indexes
                .iter()
                .map(|index| (index.rank, index.state.to_string()))
                .collect(),
        })
    }
}

/// Why a sealed image did not become durable.
struct Void {
    reason: String,
    /// The failure class, where the store is at fault and a person must look at it.
    class: Option<&'static str>,
}

impl Void {
    fn of(problem: &dyn std::error::Error) -> Self {
        Self {
            reason: chain(problem),
            class: None,
        }
    }
}

/// Checks a sealed image against what its rank may say, and makes it durable.
fn persist(
    arena: &Arena,
    slot: u32,
    step: Step,
    rank: &RankRef,
    world_size: u32,
    store: &str,
) -> Result<ShardSeal, Void> {
    let refuse = |reason: String| Void { reason, class: None };
    let image = arena.sealed(slot).map_err(|problem| Void::of(&problem))?;
    let index = image.index();
    if arena.fence() > rank.generation {
        return Err(refuse(format!("generation {} may no longer act", rank.generation)));
    }
    let told = (&index.job, index.generation, index.rank, index.step, index.world_size);
    if told != (&rank.job, rank.generation, rank.rank, step, world_size) {
        return Err(refuse("the image says it is another's".to_owned()));
    }
    let written = Store::at(store).write_shard(index, &image).map_err(|problem| Void {
        class: Some(if problem.is_no_space() {
            "disk-full"
        } else {
            "storage-io-error"
        }),
        ..Void::of(&problem)
    })?;
    Ok(written.seal)
}

/// An error with everything below it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        below = cause.source();
    }
    text
}
