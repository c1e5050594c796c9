//! Transfer of committed bytes to the slots of a restore: reads the checkpoint's manifest and indexes, selects the
//! tiers that may hold its chunks, and retries until each chunk has arrived or the failure is proven (RG-2).

use std::time::Instant;

use rankguard_checkpoint::arena::RestoredSlot;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::restore::{Request, assemble_many};
use rankguard_checkpoint::source::{ArenaSource, ChunkSource};
use rankguard_checkpoint::{Checkpoint, Lease, ReadFailure, Store, StoreError};
use rankguard_model::{RestoreBytes, RestorePoint, Source, with_causes};

use super::arenas::Place;
use super::desk::Desk;
use super::error::DeskError;
use super::joint::Wish;
use super::retry::try_until;

/// Returns the id of the checkpoint that a generation starts from.
pub(super) fn id_of(point: &RestorePoint) -> CheckpointId {
    CheckpointId {
        step: point.step,
        generation: point.generation,
    }
}

/// Checkpoint, with a lease where it is on disk, so that retention removes nothing of it.
pub(super) type Loaded = (Option<Lease>, Checkpoint);

impl Desk {
    /// Loads the committed checkpoint, retrying until `until`.
    pub(super) fn load_until(&self, place: &Place, id: CheckpointId, until: Instant) -> Result<Loaded, DeskError> {
        let store = Store::at(&self.launch.checkpoint_store);
        let patience = until.saturating_duration_since(Instant::now());
        try_until(patience, || self.load(&store, id), || {}, || self.is_fenced(place))
    }

    /// Fills slots, retrying until `until`, with new sources for each attempt.
    pub(super) fn fetch_until(
        &self,
        place: &Place,
        checkpoint: &Checkpoint,
        wishes: &[Wish],
        until: Instant,
    ) -> Result<RestoreBytes, DeskError> {
        let patience = until.saturating_duration_since(Instant::now());
        let attempt = || self.with_sources(checkpoint, |sources| self.fetch(checkpoint, wishes, sources));
        let confirm = || Store::at(&self.launch.checkpoint_store).drop_cached(checkpoint);
        try_until(patience, attempt, confirm, || self.is_fenced(place))
    }

    /// Continues [`Self::fetch_until`] after an attempt that failed.
    pub(super) fn fetch_after(
        &self,
        problem: DeskError,
        place: &Place,
        checkpoint: &Checkpoint,
        wishes: &[Wish],
        until: Instant,
    ) -> Result<RestoreBytes, DeskError> {
        if problem.failure() == ReadFailure::Invalid {
            return Err(problem);
        }
        self.fetch_until(place, checkpoint, wishes, until)
    }

    fn is_fenced(&self, place: &Place) -> bool {
        place.arena.fence() > self.rank.generation
    }

    /// Loads from the store; if it is missing there, pulls it from the object store into the store; if the store
    /// cannot take it, reads it directly from the object store. Shards may be absent: their chunks may be in a nearer
    /// tier.
    fn load(&self, store: &Store, id: CheckpointId) -> Result<Loaded, DeskError> {
        let job = &self.rank.job;
        let held = || -> Result<Loaded, StoreError> { Ok((Some(store.lease(job, id)?), store.describe(job, id)?)) };
        let lost = match held() {
            Ok(found) => return Ok(found),
            Err(problem) => problem,
        };
        let Some(url) = self.launch.tiers.mirror.as_deref() else {
            return Err(DeskError::Load {
                store: lost,
                mirror: None,
            });
        };
        if lost.failure() == ReadFailure::Missing {
            match self.all.pull(url, job, store, id) {
                Ok(()) => {
                    if let Ok(found) = held() {
                        self.note_mirror(id, "came back from the object store", &lost);
                        return Ok(found);
                    }
                }
                Err(problem) => {
                    tracing::warn!(checkpoint = %id, problem = with_causes(&*problem), "the checkpoint was not pulled");
                }
            }
        }
        match self.all.describe_mirrored(url, job, id) {
            Ok(checkpoint) => {
                self.note_mirror(id, "is read straight from the object store", &lost);
                Ok((store.lease(job, id).ok(), checkpoint))
            }
            Err(problem) => Err(DeskError::Load {
                store: lost,
                mirror: Some(problem),
            }),
        }
    }

    fn note_mirror(&self, id: CheckpointId, what: &str, lost: &StoreError) {
        let text = format!("checkpoint {id} {what}: {}", with_causes(lost));
        self.all.intake.gap(Source::Checkpoint, text, None);
    }

    /// Returns true if manifest and indexes are readable and intact: then an absent shard is lost, not merely out of
    /// reach.
    pub(super) fn is_described(&self, id: CheckpointId) -> bool {
        let store = Store::at(&self.launch.checkpoint_store);
        store.describe(&self.rank.job, id).is_ok()
    }

    /// Runs `work` with all sources that may hold chunks of a checkpoint, nearest first.
    pub(super) fn with_sources<T>(&self, checkpoint: &Checkpoint, work: impl FnOnce(&[&dyn ChunkSource]) -> T) -> T {
        let store = Store::at(&self.launch.checkpoint_store);
        let places = self.all.arenas.of(&self.rank.job);
        let here = ArenaSource::new(places.iter().map(|place| &*place.arena));
        let (peers, mirror) = (
            self.all.peers(&self.launch.peers, self.launch.generation),
            self.all.mirror_source(&self.launch),
        );
        let mut sources: Vec<&dyn ChunkSource> = vec![&here, &*self.all.shelf];
        sources.extend(peers.iter().map(|peer| peer as &dyn ChunkSource));
        let rebuilt = self.all.rebuilt(&self.launch, &checkpoint.indexes, sources.clone());
        sources.extend(rebuilt.iter().map(|rebuilt| rebuilt as &dyn ChunkSource));
        sources.push(&store);
        sources.extend(mirror.iter().map(|mirror| &**mirror));
        work(&sources)
    }

    /// Fills slots with the wanted boxes, back to back. Bytes that several slots need are read once.
    pub(super) fn fetch(
        &self,
        checkpoint: &Checkpoint,
        wishes: &[Wish],
        sources: &[&dyn ChunkSource],
    ) -> Result<RestoreBytes, DeskError> {
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
                reader: wish.reader,
            })
            .collect();
        let report =
            assemble_many(&checkpoint.manifest, &checkpoint.indexes, &mut requests, sources).inspect_err(|_| {
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
