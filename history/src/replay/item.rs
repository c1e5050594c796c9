//! Recorded observation with its classification by each catalogue.

use rankguard_model::{
    Classification, Device, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Generation, JobId, NodeId,
    Rank, Timestamp,
};

/// Job of logs without a cluster.
const JOB: &str = "job";

/// Observation that at least one catalogue classifies, or that was recorded as evidence.
#[derive(Debug, Clone)]
pub(super) struct ReplayItem {
    pub(super) at: Timestamp,
    pub(super) source: EvidenceSource,
    pub(super) node: NodeId,
    pub(super) rank: Option<Rank>,
    pub(super) device: Option<Device>,
    pub(super) text: String,
    pub(super) repeats: u32,
    /// Classifications by each catalogue, best first.
    pub(super) marks: Vec<Vec<Classification>>,
    /// Original evidence, if it was recorded.
    pub(super) recorded: Option<Box<Evidence>>,
}

impl ReplayItem {
    /// Returns the observation as evidence with the classifications of one catalogue; `None` if
    /// that catalogue has none.
    pub(super) fn evidence(&self, which: usize, id: EvidenceId) -> Option<Evidence> {
        let marks = self.marks.get(which)?;
        if let Some(recorded) = &self.recorded {
            let says_something = !marks.is_empty() || !matches!(recorded.body, EvidenceBody::Line { .. });
            return says_something.then(|| Evidence {
                id,
                at: self.at,
                marks: marks.clone(),
                ..(**recorded).clone()
            });
        }
        if marks.is_empty() {
            return None;
        }
        let node = self.node.clone();
        let entity = match (&self.device, self.rank) {
            (Some(device), _) => Entity::Device {
                node,
                device: device.clone(),
            },
            (None, Some(rank)) => Entity::Rank {
                job: JobId::from(JOB),
                generation: Generation(0),
                rank,
                node,
            },
            (None, None) if self.source == EvidenceSource::KernelLog => Entity::Node { node },
            (None, None) => Entity::Job { job: JobId::from(JOB) },
        };
        Some(Evidence {
            id,
            at: self.at,
            source: self.source,
            entity,
            body: EvidenceBody::Line {
                text: self.text.clone(),
                context: Vec::new(),
                repeats: self.repeats,
            },
            marks: marks.clone(),
            synthetic: false,
        })
    }
}
