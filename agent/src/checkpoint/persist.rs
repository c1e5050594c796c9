//! Write of a sealed slot to a durable shard.

use std::sync::Arc;

use rankguard_checkpoint::format::{CheckpointId, KnownChunks};
use rankguard_checkpoint::{CheckpointLease, Store, StoreError};
use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceBody, EvidenceSource, RankRef, Role, ShardSeal, Step, with_causes};

use super::arenas::RankArena;
use super::dedupe::ChunkDeduplicator;
use crate::pending_evidence::{PendingEvidence, mark};

/// Write of one shard.
pub(super) struct ShardWrite<'a> {
    pub(super) place: &'a Arc<RankArena>,
    pub(super) slot: u32,
    pub(super) step: Step,
    pub(super) rank: &'a RankRef,
    pub(super) world_size: u32,
    pub(super) store: &'a str,
    /// Newest committed checkpoint of the job.
    pub(super) kept: Option<CheckpointId>,
    pub(super) dedupe: &'a ChunkDeduplicator,
}

/// Failure to make a sealed image durable.
pub(super) struct ShardWriteFailure {
    pub(super) reason: String,
    /// Failure class, if the store is at fault and an operator must act.
    pub(super) class: Option<&'static str>,
    /// State of the slot afterwards.
    pub(super) then: SlotDisposition,
}

/// State of a slot after its image did not become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotDisposition {
    /// Freed for the next image.
    Goes,
    /// Already in use by another image.
    Gone,
    /// Retained and not reported: the generation may no longer act and the next one may finish the write, or the rank
    /// reports.
    Stays,
}

impl ShardWriteFailure {
    /// Converts a store error; the class is set unless the image itself is at fault, or a process that wrote the same shard before.
    pub(super) fn of_store(problem: &StoreError) -> Self {
        if problem.is_conflict() {
            let reason = with_causes(problem);
            return Self::refused(format!(
                "{reason}; a process wrote it before, such as one that was started again within the generation"
            ));
        }
        let class = match problem {
            it if it.is_of_image() => None,
            it if it.is_no_space() => Some(classes::DISK_FULL),
            _ => Some(classes::STORAGE_IO_ERROR),
        };
        Self {
            class,
            ..Self::of(problem)
        }
    }

    pub(super) fn of(problem: &dyn std::error::Error) -> Self {
        Self {
            reason: with_causes(problem),
            class: None,
            then: SlotDisposition::Goes,
        }
    }

    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            class: None,
            then: SlotDisposition::Goes,
        }
    }

    fn replaced() -> Self {
        Self {
            then: SlotDisposition::Gone,
            ..Self::refused("it gave way to a newer image before it was written")
        }
    }
}

/// Returns the evidence for the controller about a shard write.
pub(super) fn shard_evidence(
    entity: Entity,
    step: Step,
    ended: &Result<ShardSeal, ShardWriteFailure>,
) -> PendingEvidence {
    let (body, class) = match ended {
        Ok(seal) => (EvidenceBody::ShardDurable { seal: seal.clone() }, None),
        Err(void) => (
            EvidenceBody::ShardFailed {
                step,
                reason: void.reason.clone(),
            },
            void.class,
        ),
    };
    let marks = class.map(|class| mark(class, Role::Root, 0.95, "checkpoint-store"));
    let marks = marks.into_iter().collect();
    PendingEvidence::now(EvidenceSource::Checkpoint, entity, body)
        .marked(marks)
        .urgent()
}

impl ShardWrite<'_> {
    /// Checks the description of a sealed image against its rank, and makes it durable.
    pub(super) fn run(&self) -> Result<ShardSeal, ShardWriteFailure> {
        let arena = &self.place.arena;
        let generation = self.rank.generation;
        let begun = arena.begin_write(self.slot, generation);
        if !begun.map_err(|problem| ShardWriteFailure::of(&problem))? {
            return Err(ShardWriteFailure::replaced());
        }
        let image = arena
            .sealed(self.slot)
            .map_err(|problem| ShardWriteFailure::of(&problem))?;
        let index = image.index();
        if index.step != self.step {
            let _ = arena.leave(self.slot, generation);
            return Err(ShardWriteFailure::replaced());
        }
        if arena.fence() > generation {
            let _ = arena.leave(self.slot, generation);
            return Err(ShardWriteFailure {
                then: SlotDisposition::Stays,
                ..ShardWriteFailure::refused(format!("generation {generation} may no longer act"))
            });
        }
        let told = (&index.job, index.generation, index.rank, index.world_size);
        if told != (&self.rank.job, generation, self.rank.rank, self.world_size) {
            return Err(ShardWriteFailure::refused("the image says it is another's"));
        }
        let store = Store::at(self.store);
        let last = self.place.last.lock().expect("no writer panics").take();
        let lease = self.lease(&store, last.as_ref().map(|last| last.id()));
        let turn = self.dedupe.begin(index, last.as_ref().filter(|_| lease.is_some()));
        let known = turn.known();
        let written = store.write_new(index, &image, &known).or_else(|problem| {
            // The borrowed chunks may have been damaged or removed by hand.
            if known.is_empty() || problem.is_no_space() {
                return Err(problem);
            }
            store.write_new(index, &image, &KnownChunks::default())
        });
        let written = written.map_err(|problem| ShardWriteFailure::of_store(&problem))?;
        turn.end_whole(written.index.clone());
        if written.new_bytes < index.image_bytes {
            tracing::debug!(rank = %self.rank.rank, step = %self.step, written.new_bytes, index.image_bytes, "deduplicated");
        }
        *self.place.last.lock().expect("no writer panics") = Some(written.index);
        // Held until the checkpoint is committed, so that the chunks that it borrows are retained.
        *self.place.lease.lock().expect("no writer panics") = lease;
        Ok(written.seal)
    }

    /// Leases the checkpoint of the shard that this place wrote last, if it is the newest committed one.
    fn lease(&self, store: &Store, last: Option<CheckpointId>) -> Option<CheckpointLease> {
        let parent = last.filter(|last| Some(*last) == self.kept)?;
        store.lease(&self.rank.job, parent).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_shard_that_was_written_before_is_no_fault_of_the_store() {
        let path = PathBuf::from("/store/llm/000000000010-g1/rank-00001.shard");
        let conflict = ShardWriteFailure::of_store(&StoreError::Conflict { path: path.clone() });
        assert_eq!(conflict.class, None, "{}", conflict.reason);
        assert!(conflict.reason.contains("started again"), "{}", conflict.reason);
        let broken = ShardWriteFailure::of_store(&StoreError::Io {
            what: "write",
            path,
            source: io::Error::from_raw_os_error(5),
        });
        assert_eq!(broken.class, Some(classes::STORAGE_IO_ERROR));
    }
}
