//! Published logs and synthetic storms as evidence, in the order in which a controller would
//! receive it.

pub(crate) mod logs;
pub(crate) mod storms;

use rankguard_diagnosis::{ConcludedDraft, Diagnosis, DraftChange, DraftPolicy, PlacementIndex};
use rankguard_faults::{Catalogue, LogObservation, SignatureMatcher};
use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, NodeId, Sequence, Timestamp};

/// Marks a line as triage does; leaves other evidence unmarked.
pub(crate) fn mark(evidence: &mut Evidence, matcher: &SignatureMatcher) {
    if let EvidenceBody::Line { text, .. } = &evidence.body {
        evidence.marks = matcher.marks(evidence.source, text);
    }
}

/// Returns a line as unmarked evidence.
pub(crate) fn line(number: usize, at: Timestamp, source: EvidenceSource, entity: Entity, text: &str) -> Evidence {
    let body = EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    evidence(number, at, source, entity, body)
}

/// Returns an observation as evidence of a machine. A log without a clock has a constant time.
pub(crate) fn observed(number: usize, source: EvidenceSource, seen: LogObservation) -> Evidence {
    let node = NodeId::from(seen.host.unwrap_or_else(|| "node".to_owned()));
    let entity = match seen.device {
        Some(device) => Entity::Device { node, device },
        None => Entity::Node { node },
    };
    let body = EvidenceBody::Line {
        text: seen.text,
        context: seen.context,
        repeats: seen.repeats,
    };
    Evidence {
        marks: seen.marks,
        ..evidence(number, seen.at.unwrap_or_default(), source, entity, body)
    }
}

/// Returns evidence with a sequence number, without marks.
pub(crate) fn evidence(
    number: usize,
    at: Timestamp,
    source: EvidenceSource,
    entity: Entity,
    body: EvidenceBody,
) -> Evidence {
    Evidence {
        id: EvidenceId {
            node: entity.node().cloned().unwrap_or_else(|| "node".into()),
            seq: Sequence(number as u64 + 1),
        },
        at,
        source,
        entity,
        body,
        marks: Vec::new(),
        synthetic: false,
    }
}

/// Diagnosis with its clock, which follows the evidence.
pub(crate) struct Brain<'a> {
    pub(crate) diagnosis: Diagnosis,
    context: &'a PlacementIndex,
    catalogue: &'static Catalogue,
    now: Timestamp,
}

impl<'a> Brain<'a> {
    pub(crate) fn new(context: &'a PlacementIndex) -> Self {
        Self {
            diagnosis: Diagnosis::new(DraftPolicy::default()),
            context,
            catalogue: Catalogue::builtin(),
            now: Timestamp(i64::MIN),
        }
    }

    /// Takes in evidence as a shell does: after everything that was due before it.
    pub(crate) fn take(&mut self, evidence: &Evidence, each: &mut impl FnMut(&ConcludedDraft)) -> Vec<DraftChange> {
        self.until(evidence.at, each);
        self.now = self.now.max(evidence.at);
        self.diagnosis.observe(self.now, evidence, self.context, self.catalogue)
    }

    /// Concludes the drafts that are due up to a time, each at its own.
    pub(crate) fn until(&mut self, moment: Timestamp, each: &mut impl FnMut(&ConcludedDraft)) {
        while let Some(due) = self.diagnosis.due().filter(|due| *due <= moment) {
            self.now = self.now.max(due);
            self.diagnosis
                .conclude(self.now, self.catalogue)
                .iter()
                .for_each(&mut *each);
        }
    }
}
