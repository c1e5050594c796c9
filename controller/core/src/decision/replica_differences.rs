//! Replicas in a checkpoint that must be equal and differ: evidence of silent data corruption.
//!
//! The checkpoint is not committed. One that was committed all the same (older journals, a manifest that existed) is no
//! start of the job if there is an older one. Tensors with other values on each rank are no such evidence: the
//! checkpoint is usable, and the job shows their names.

use rankguard_checkpoint_format::CheckpointId;
use rankguard_checkpoint_schedule::replica_differences::ReplicaDifference;
use rankguard_faults::classes;
use rankguard_model::{
    ClassId, Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FieldValues, Generation,
    JobId, NodeId, Rank, Role, Sequence, Step, per_rank_note,
};

use super::{DecisionContext, node_of};
use crate::counted_nouns::{count, counted};

impl DecisionContext<'_> {
    /// Reports each difference to diagnosis: against the ranks that a majority contradicts, or against the job without
    /// a majority.
    pub(super) fn replicas_differ(
        &mut self,
        name: &JobId,
        generation: Generation,
        step: Step,
        differing: &[ReplicaDifference],
    ) {
        for difference in differing {
            let suspects = difference.suspects();
            let job = self.state.jobs.get(name);
            let blamed: Vec<Option<(Rank, NodeId)>> = if suspects.is_empty() {
                vec![None]
            } else {
                let placed = |rank: &Rank| Some((*rank, node_of(job?, *rank)?));
                suspects.iter().map(placed).collect()
            };
            for one in blamed {
                let evidence = self.difference_as_evidence(name, generation, step, difference, one);
                self.pass_to_diagnosis(&evidence);
            }
        }
    }

    /// Excludes a checkpoint with differing replicas as a start, if there is an older one.
    pub(super) fn distrust_differing(
        &mut self,
        name: &JobId,
        generation: Generation,
        step: Step,
        differing: &[ReplicaDifference],
    ) {
        let Some(job) = self.state.jobs.get_mut(name).filter(|_| !differing.is_empty()) else {
            return;
        };
        let older = job.checkpoints.committed.len() > 1;
        if older && job.checkpoints.distrust(generation, step) {
            self.announce(format!(
                "checkpoint of step {step} of job {name} holds replicas that differ: nobody starts from it"
            ));
        }
    }

    /// Records the tensors with other values on each rank of the newest checkpoint, and announces new ones.
    pub(super) fn note_per_rank_tensors(&mut self, name: &JobId, step: Step, tensors: &[String]) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let is_newest = job.checkpoints.newest().is_some_and(|newest| newest.step == step);
        if !is_newest || job.checkpoints.per_rank_tensors == *tensors {
            return;
        }
        job.checkpoints.per_rank_tensors = tensors.to_vec();
        if let Some(note) = per_rank_note(tensors) {
            self.announce(format!("checkpoint of step {step} of job {name}: {note}"));
        }
    }

    /// Records the tensors for which only the same number of ranks can restore a checkpoint.
    pub(super) fn note_same_size_tensors(
        &mut self,
        name: &JobId,
        generation: Generation,
        step: Step,
        tensors: &[String],
    ) {
        if !self.state.keeps_required_sizes() {
            return;
        }
        if let Some(job) = self.state.jobs.get_mut(name) {
            let checkpoint = CheckpointId { step, generation };
            job.checkpoints.note_same_size(checkpoint, tensors);
        }
    }

    fn difference_as_evidence(
        &self,
        name: &JobId,
        generation: Generation,
        step: Step,
        difference: &ReplicaDifference,
        suspect: Option<(Rank, NodeId)>,
    ) -> Evidence {
        let list = |ranks: &[Rank]| ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let told = match &suspect {
            Some((rank, _)) => format!("rank {rank} differs from the majority"),
            None => "there is no majority".to_owned(),
        };
        let text = format!(
            "replicas of tensor {} at {:?} differ in {} at step {step}, ranks {}: {told}",
            difference.tensor,
            difference.offset,
            count(counted(difference.chunks.len()), "chunk"),
            list(&difference.ranks())
        );
        let fields = FieldValues::from([
            ("tensor".to_owned(), difference.tensor.clone()),
            ("ranks".to_owned(), list(&difference.ranks())),
            ("step".to_owned(), step.to_string()),
        ]);
        let (entity, confidence) = match &suspect {
            Some((rank, node)) => (
                Entity::Rank {
                    job: name.clone(),
                    generation,
                    rank: *rank,
                    node: node.clone(),
                },
                0.9,
            ),
            None => (Entity::Job { job: name.clone() }, 0.6),
        };
        Evidence {
            // Sequence 0: the controller compared digests itself, and no spool holds this evidence.
            id: EvidenceId {
                node: suspect.map_or_else(|| NodeId::from("controller"), |(_, node)| node),
                seq: Sequence(0),
            },
            at: self.at,
            source: EvidenceSource::Checkpoint,
            entity,
            body: EvidenceBody::Line {
                text,
                context: Vec::new(),
                repeats: 1,
            },
            marks: vec![Classification {
                class: ClassId::from(classes::SILENT_DATA_CORRUPTION),
                role: Role::Root,
                confidence,
                signature: "replica-digests".into(),
                fields,
            }],
            synthetic: false,
        }
    }
}
