//! Evidence of a collector before it has a sequence number.

use rankguard_model::{ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues, Role, Timestamp};

use crate::clock;

/// Evidence without a sequence number, dated by the node's own clock.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingEvidence {
    pub(crate) at: Timestamp,
    pub(crate) source: EvidenceSource,
    pub(crate) entity: Entity,
    pub(crate) body: EvidenceBody,
    pub(crate) marks: Vec<Classification>,
    /// True if it must not wait for other evidence to share a commit.
    pub(crate) urgent: bool,
    /// Position of its reader after it: stored in the same commit, so that a restart neither repeats nor skips it.
    pub(crate) cursor: Option<ReaderCursor>,
    /// True if it must be stored in the same commit as the next one, which carries the reader's position: a kill
    /// between two commits would otherwise have it read again.
    pub(crate) joined: bool,
    /// True if it results from an injection or a simulation.
    pub(crate) synthetic: bool,
}

/// Position of a reader in its source; an empty value deletes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReaderCursor {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl PendingEvidence {
    /// Creates evidence dated now.
    pub(crate) fn now(source: EvidenceSource, entity: Entity, body: EvidenceBody) -> Self {
        let urgent = !is_droppable(&body);
        Self {
            at: clock::now(),
            source,
            entity,
            body,
            marks: Vec::new(),
            urgent,
            cursor: None,
            joined: false,
            synthetic: false,
        }
    }

    pub(crate) fn at(mut self, at: Timestamp) -> Self {
        self.at = at;
        self
    }

    pub(crate) fn marked(mut self, marks: Vec<Classification>) -> Self {
        // A sample with a failure class is evidence of a failure and not a statistic.
        self.urgent |= !marks.is_empty();
        self.marks = marks;
        self
    }

    pub(crate) fn urgent(mut self) -> Self {
        self.urgent = true;
        self
    }

    /// Marks it as synthetic if `synthetic` is true; the mark is never removed.
    pub(crate) fn synthetic(mut self, synthetic: bool) -> Self {
        self.synthetic |= synthetic;
        self
    }

    #[cfg(test)]
    pub(crate) fn with_cursor(mut self, cursor: Option<ReaderCursor>) -> Self {
        self.cursor = cursor;
        self
    }

    /// True if it is among the first to be dropped when the spool is full.
    pub(crate) fn is_droppable(&self) -> bool {
        is_droppable(&self.body) && self.marks.is_empty()
    }
}

/// True for samples and progress, which later ones supersede; everything else occurs once.
pub(crate) fn is_droppable(body: &EvidenceBody) -> bool {
    matches!(body, EvidenceBody::Progress { .. } | EvidenceBody::Sample { .. })
}

/// Builds the evidence for a measured value that is beyond its threshold.
pub(crate) fn sample(source: EvidenceSource, entity: Entity, metric: &str, value: f64, unit: &str) -> PendingEvidence {
    let body = EvidenceBody::Sample {
        metric: metric.to_owned(),
        value,
        unit: unit.to_owned(),
    };
    PendingEvidence::now(source, entity, body)
}

/// Builds the classification of a measured value: failure class of the catalogue, role, confidence and signature.
pub(crate) fn mark(class: &str, role: Role, confidence: f64, signature: &str) -> Classification {
    Classification {
        class: ClassId::from(class),
        role,
        confidence,
        signature: signature.into(),
        fields: FieldValues::new(),
    }
}
