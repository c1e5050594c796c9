//! Evidence about lost evidence.

use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Timestamp};

/// Returns evidence about lost evidence (RG-4).
pub(crate) fn gap(id: EvidenceId, at: Timestamp, what: String, lost: u64) -> Evidence {
    Evidence {
        at,
        source: EvidenceSource::Agent,
        entity: Entity::Node { node: id.node.clone() },
        body: EvidenceBody::Gap { what, lost: Some(lost) },
        marks: Vec::new(),
        synthetic: false,
        id,
    }
}
