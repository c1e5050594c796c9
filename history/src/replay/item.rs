//! One thing that was recorded, with what each catalogue says of it.

use rankguard_model::{
    Body, Device, Entity, Evidence, EvidenceId, Generation, JobId, Mark, NodeId, Rank, Source, Timestamp,
};

/// The job that logs without a cluster belong to.
const JOB: &str = "job";

/// Something that at least one catalogue marks, or that was recorded as evidence.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) at: Timestamp,
    pub(super) source: Source,
    pub(super) node: NodeId,
    pub(super) rank: Option<Rank>,
    pub(super) device: Option<Device>,
    pub(super) text: String,
    pub(super) repeats: u32,
    /// What each catalogue says, best first.
    pub(super) marks: Vec<Vec<Mark>>,
    /// The evidence as it was recorded, where it was.
    pub(super) recorded: Option<Box<Evidence>>,
}

impl Item {
    /// As evidence with the marks of one catalogue; nothing where it means nothing to it.
    pub(super) fn evidence(&self, which: usize, id: EvidenceId) -> Option<Evidence> {
        let marks = self.marks.get(which)?;
        if let Some(recorded) = &self.recorded {
            let says_something = !marks.is_empty() || !matches!(recorded.body, Body::Line { .. });
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
            (None, None) if self.source == Source::KernelLog => Entity::Node { node },
            (None, None) => Entity::Job { job: JobId::from(JOB) },
        };
        Some(Evidence {
            id,
            at: self.at,
            source: self.source,
            entity,
            body: Body::Line {
                text: self.text.clone(),
                context: Vec::new(),
                repeats: self.repeats,
            },
            marks: marks.clone(),
            synthetic: false,
        })
    }
}
