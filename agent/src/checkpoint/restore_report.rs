//! Evidence for the controller about a failed restore: proven damage, or unreadable storage (RG-2).

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::restore::RestoreError;
use rankguard_checkpoint::{ReadFailure, Store};
use rankguard_faults::classes;
use rankguard_model::{Classification, EvidenceBody, EvidenceSource, RestorePoint, Role, with_causes};

use super::error::RankServiceError;
use super::fetch::id_of;
use super::rank_service::RankService;
use crate::pending_evidence::{PendingEvidence, mark};

/// Signature by which the controller matches restores that are tried again.
const RETRIED: &str = "checkpoint-restore-retry";

impl RankService {
    /// Reports a failed restore. Faults of the rank's request or of this agent's memory are reported by the rank.
    pub(crate) fn report_failed_restore(&self, point: &RestorePoint, problem: &RankServiceError, reason: &str) {
        let Some(mark) = self.mark_of(point, problem) else {
            return;
        };
        let store = Store::at(&self.launch.checkpoint_store);
        let command = store.parity_repair(&self.rank.job, id_of(point));
        let hint = command.map(|command| format!("; the checkpoint has parity, try `{command}`"));
        let body = EvidenceBody::Line {
            text: format!("{reason}{}", hint.unwrap_or_default()),
            context: Vec::new(),
            repeats: 1,
        };
        let entity = self.all.roster.entity(&self.rank);
        let sighting = PendingEvidence::now(EvidenceSource::Checkpoint, entity, body).marked(vec![mark]);
        self.all.intake.push(sighting.urgent());
    }

    /// Reports a restore that is tried again, so that the state of the job shows what its rank waits for. The end of the
    /// retries is reported by [`Self::report_failed_restore`].
    pub(super) fn report_retried_restore(&self, id: CheckpointId, problem: &RankServiceError) {
        let mut mark = mark(classes::NONE, Role::Noise, 0.9, RETRIED);
        mark.fields.insert("step", id.step.to_string());
        let body = EvidenceBody::Line {
            text: with_causes(problem),
            context: Vec::new(),
            repeats: 1,
        };
        let entity = self.all.roster.entity(&self.rank);
        let sighting = PendingEvidence::now(EvidenceSource::Checkpoint, entity, body).marked(vec![mark]);
        self.all.intake.push(sighting.urgent());
    }

    fn mark_of(&self, point: &RestorePoint, problem: &RankServiceError) -> Option<Classification> {
        let (class, outcome) = match problem.failure() {
            ReadFailure::Invalid => return None,
            ReadFailure::Damaged => (classes::CHECKPOINT_CORRUPT, "damaged"),
            // A shard is gone although the indexes that name it are present and intact.
            ReadFailure::Missing if self.is_described(id_of(point)) => (classes::CHECKPOINT_CORRUPT, "damaged"),
            _ => (class_of(problem), "unavailable"),
        };
        let mut mark = mark(class, Role::Root, 0.95, "checkpoint-restore");
        let mut field = |name: &str, value: String| mark.fields.insert(name.to_owned(), value);
        field("step", point.step.to_string());
        field("generation", point.generation.to_string());
        field("restore", outcome.to_owned());
        if let RankServiceError::Restore(RestoreError::NoGoodCopy {
            tensor, rank, chunk, ..
        }) = problem
        {
            field("tensor", tensor.clone());
            field("rank", rank.to_string());
            field("chunk", chunk.to_string());
        }
        Some(mark)
    }
}

/// Returns the failure class of unreadable storage.
fn class_of(problem: &RankServiceError) -> &'static str {
    match problem {
        RankServiceError::Load {
            mirror: Some(mirror), ..
        } if mirror.is_remote() => classes::OBJECT_STORAGE_ERROR,
        _ => classes::STORAGE_IO_ERROR,
    }
}
