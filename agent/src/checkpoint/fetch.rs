//! Transfer of committed bytes to the slots of a restore: reads the checkpoint's manifest and indexes, selects the
//! tiers that may hold its chunks, and retries until each chunk has arrived or the failure is proven (RG-2).

use std::time::Instant;

use rankguard_checkpoint::arena::{ArenaError, RestoredSlot};
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::restore::{RankRestore, assemble_many};
use rankguard_checkpoint::source::{ArenaSource, ChunkSource};
use rankguard_checkpoint::{Checkpoint, CheckpointLease, ReadFailure, Store, StoreError};
use rankguard_checkpoint_tiers::parity::ParityMirror;
use rankguard_model::{EvidenceSource, RestoreBytes, RestorePoint, with_causes};

use super::arenas::RankArena;
use super::error::RankServiceError;
use super::joint::RestoreRequest;
use super::rank_service::RankService;
use super::retry::try_until;

/// Maximum number of repaired chunks of a restore that are reported one by one.
const REPAIRS_REPORTED: usize = 8;

/// Returns the id of the checkpoint that a generation starts from.
pub(super) fn id_of(point: &RestorePoint) -> CheckpointId {
    CheckpointId {
        step: point.step,
        generation: point.generation,
    }
}

/// Checkpoint, with a lease where it is on disk, so that retention removes nothing of it.
pub(super) type LeasedCheckpoint = (Option<CheckpointLease>, Checkpoint);

impl RankService {
    /// Loads the committed checkpoint, retrying until `until`.
    pub(super) fn load_until(
        &self,
        place: &RankArena,
        id: CheckpointId,
        until: Instant,
    ) -> Result<LeasedCheckpoint, RankServiceError> {
        let store = Store::at(&self.launch.checkpoint_store);
        let patience = until.saturating_duration_since(Instant::now());
        let report = |problem: &RankServiceError| self.report_retried_restore(id, problem);
        try_until(
            patience,
            || self.load(&store, id),
            || {},
            || self.is_fenced(place),
            report,
        )
    }

    /// Fills slots, retrying until `until`, with new sources for each attempt.
    pub(super) fn fetch_until(
        &self,
        place: &RankArena,
        checkpoint: &Checkpoint,
        wishes: &[RestoreRequest],
        until: Instant,
    ) -> Result<RestoreBytes, RankServiceError> {
        let patience = until.saturating_duration_since(Instant::now());
        let attempt = || self.with_sources(checkpoint, |sources| self.fetch(checkpoint, wishes, sources));
        let confirm = || Store::at(&self.launch.checkpoint_store).drop_cached(checkpoint);
        let report = |problem: &RankServiceError| self.report_retried_restore(checkpoint.id(), problem);
        try_until(patience, attempt, confirm, || self.is_fenced(place), report)
    }

    /// Continues [`Self::fetch_until`] after an attempt that failed.
    pub(super) fn fetch_after(
        &self,
        problem: RankServiceError,
        place: &RankArena,
        checkpoint: &Checkpoint,
        wishes: &[RestoreRequest],
        until: Instant,
    ) -> Result<RestoreBytes, RankServiceError> {
        if problem.failure() == ReadFailure::Invalid {
            return Err(problem);
        }
        self.fetch_until(place, checkpoint, wishes, until)
    }

    fn is_fenced(&self, place: &RankArena) -> bool {
        place.arena.fence() > self.rank.generation
    }

    /// Loads from the store; if it is missing there, pulls it from the object store into the store; if the store
    /// cannot take it, reads it directly from the object store. Shards may be absent: their chunks may be in a nearer
    /// tier.
    fn load(&self, store: &Store, id: CheckpointId) -> Result<LeasedCheckpoint, RankServiceError> {
        let job = &self.rank.job;
        let held =
            || -> Result<LeasedCheckpoint, StoreError> { Ok((Some(store.lease(job, id)?), store.describe(job, id)?)) };
        let lost = match held() {
            Ok(found) => return Ok(found),
            Err(problem) => problem,
        };
        let Some(url) = self.launch.tiers.mirror.as_deref() else {
            return Err(RankServiceError::Load {
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
            Err(problem) => Err(RankServiceError::Load {
                store: lost,
                mirror: Some(problem),
            }),
        }
    }

    fn note_mirror(&self, id: CheckpointId, what: &str, lost: &StoreError) {
        let text = format!("checkpoint {id} {what}: {}", with_causes(lost));
        self.all.intake.gap(EvidenceSource::Checkpoint, text, None);
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
        let peers = self.all.peers(&self.launch.peers, self.launch.generation);
        let mirror = self.all.mirror_source(&self.launch);
        let mut sources: Vec<&dyn ChunkSource> = vec![&here, &*self.all.shelf];
        sources.extend(peers.iter().map(|peer| peer as &dyn ChunkSource));
        let rebuilt = self.all.rebuilt(&self.launch, &checkpoint.indexes, sources.clone());
        sources.extend(rebuilt.iter().map(|rebuilt| rebuilt as &dyn ChunkSource));
        sources.push(&store);
        sources.extend(mirror.iter().map(|mirror| &**mirror));
        // Last, because it reads several shards for each chunk.
        let parity = ParityMirror::new(&store, &store.parity_root());
        sources.push(&parity);
        work(&sources)
    }

    /// Fills slots with the wanted boxes, back to back. Bytes that several slots need are read once.
    pub(super) fn fetch(
        &self,
        checkpoint: &Checkpoint,
        wishes: &[RestoreRequest],
        sources: &[&dyn ChunkSource],
    ) -> Result<RestoreBytes, RankServiceError> {
        let targets = wishes.iter().map(|wish| {
            let target = wish.arena.begin_restore(wish.slot, self.rank.generation);
            target.map_err(|problem| match problem {
                ArenaError::Fenced { .. } => RankServiceError::Fenced,
                other => other.into(),
            })
        });
        let mut targets: Vec<RestoredSlot<'_>> = targets.collect::<Result<_, _>>()?;
        let mut requests: Vec<RankRestore<'_>> = wishes
            .iter()
            .zip(&mut targets)
            .map(|(wish, target)| RankRestore {
                wanted: &wish.wanted,
                out: target,
                reader: wish.reader,
            })
            .collect();
        let assembled = assemble_many(&checkpoint.manifest, &checkpoint.indexes, &mut requests, sources);
        drop(requests);
        drop(targets);
        let is_over = wishes.iter().any(|wish| wish.arena.fence() > self.rank.generation);
        if assembled.is_err() || is_over {
            for wish in wishes {
                let _ = wish.arena.release_restored(wish.slot, self.rank.generation);
            }
        }
        let report = assembled?;
        if is_over {
            return Err(RankServiceError::Fenced);
        }
        for repair in report.repairs.iter().take(REPAIRS_REPORTED) {
            tracing::warn!(repair, "a copy of a chunk could not be used, and another one was taken");
            self.all.intake.gap(EvidenceSource::Checkpoint, repair.clone(), None);
        }
        if let Some(text) = self.summary_of_repairs(checkpoint, report.repairs.len()) {
            self.all.intake.gap(EvidenceSource::Checkpoint, text, None);
        }
        Ok(report.bytes)
    }

    /// Describes the repairs that are not reported one by one, and names the command that makes them permanent.
    fn summary_of_repairs(&self, checkpoint: &Checkpoint, repairs: usize) -> Option<String> {
        let store = Store::at(&self.launch.checkpoint_store);
        let id = checkpoint.id();
        let command = store.parity_repair(&self.rank.job, id).filter(|_| repairs > 0);
        let more = repairs.saturating_sub(REPAIRS_REPORTED);
        if command.is_none() && more == 0 {
            return None;
        }
        let chunks = if repairs == 1 { "chunk" } else { "chunks" };
        let mut text = format!("checkpoint {id} was restored, but copies of {repairs} {chunks} are damaged or missing");
        if let Some(command) = command {
            text += &format!("; `{command}` rebuilds them in the store");
        }
        Some(text)
    }
}
