//! Published logs and synthetic storms as evidence, in the order in which a controller would
//! receive it.

pub(crate) mod logs;
pub(crate) mod storms;

use rankguard_diagnosis::{Change, Concluded, Context, Diagnosis, Policy};
use rankguard_faults::{Catalogue, Matcher, Observation};
use rankguard_model::{Body, Entity, Evidence, EvidenceId, NodeId, Sequence, Source, Timestamp};

/// Marks a line as triage does; leaves other evidence unmarked.
pub(crate) fn mark(evidence: &mut Evidence, matcher: &Matcher) {
    if let Body::Line { text, .. } = &evidence.body {
        evidence.marks = matcher.marks(evidence.source, text);
    }
}

/// Returns a line as unmarked evidence.
pub(crate) fn line(number: usize, at: Timestamp, source: Source, entity: Entity, text: &str) -> Evidence {
    let body = Body::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    evidence(number, at, source, entity, body)
}

/// Returns an observation as evidence of a machine. A log without a clock has a constant time.
pub(crate) fn observed(number: usize, source: Source, seen: Observation) -> Evidence {
    let node = NodeId::from(seen.host.unwrap_or_else(|| "node".to_owned()));
    let entity = match seen.device {
        Some(device) => Entity::Device { node, device },
        None => Entity::Node { node },
    };
    let body = Body::Line {
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
pub(crate) fn evidence(number: usize, at: Timestamp, source: Source, entity: Entity, body: Body) -> Evidence {
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
    context: &'a Context,
    catalogue: &'static Catalogue,
    now: Timestamp,
}

impl<'a> Brain<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        Self {
            diagnosis: Diagnosis::new(Policy::default()),
            context,
            catalogue: Catalogue::builtin(),
            now: Timestamp(i64::MIN),
        }
    }

    /// Takes in evidence as a shell does: after everything that was due before it.
    pub(crate) fn take(&mut self, evidence: &Evidence, each: &mut impl FnMut(&Concluded)) -> Vec<Change> {
        self.until(evidence.at, each);
        self.now = self.now.max(evidence.at);
        self.diagnosis.observe(self.now, evidence, self.context, self.catalogue)
    }

    /// Concludes the drafts that are due up to a time, each at its own.
    pub(crate) fn until(&mut self, moment: Timestamp, each: &mut impl FnMut(&Concluded)) {
        while let Some(due) = self.diagnosis.due().filter(|due| *due <= moment) {
            self.now = self.now.max(due);
            self.diagnosis
                .conclude(self.now, self.catalogue)
                .iter()
                .for_each(&mut *each);
        }
    }
}
