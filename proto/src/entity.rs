//! Conversion of entities and devices between wire and model.

use rankguard_model::{Device, DeviceKind, Entity, Generation, JobId, NodeId, Rank};

use crate::WireError;
use crate::error::{known, name, required};
use crate::v1;
use crate::v1::entity::{JobRank, Kind, NodeDevice, Unknown, WholeJob, WholeNode};

impl From<DeviceKind> for v1::DeviceKind {
    fn from(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Gpu => Self::Gpu,
            DeviceKind::Nic => Self::Nic,
            DeviceKind::Nvswitch => Self::Nvswitch,
            DeviceKind::Disk => Self::Disk,
        }
    }
}

impl From<&Device> for v1::Device {
    fn from(device: &Device) -> Self {
        Self {
            kind: v1::DeviceKind::from(device.kind).into(),
            address: device.address.clone(),
        }
    }
}

impl TryFrom<v1::Device> for Device {
    type Error = WireError;

    fn try_from(device: v1::Device) -> Result<Self, WireError> {
        let kind = match known::<v1::DeviceKind>("kind", device.kind)? {
            v1::DeviceKind::Unspecified => return Err(WireError::absent("kind")),
            v1::DeviceKind::Gpu => DeviceKind::Gpu,
            v1::DeviceKind::Nic => DeviceKind::Nic,
            v1::DeviceKind::Nvswitch => DeviceKind::Nvswitch,
            v1::DeviceKind::Disk => DeviceKind::Disk,
        };
        Ok(Self {
            kind,
            address: device.address,
        })
    }
}

impl From<&Entity> for v1::Entity {
    fn from(entity: &Entity) -> Self {
        let kind = match entity {
            Entity::Unknown => Kind::Unknown(Unknown {}),
            Entity::Node { node } => Kind::Node(WholeNode { node: node.to_string() }),
            Entity::Device { node, device } => Kind::Device(NodeDevice {
                node: node.to_string(),
                device: Some(device.into()),
            }),
            Entity::Rank {
                job,
                generation,
                rank,
                node,
            } => Kind::Rank(JobRank {
                job: job.to_string(),
                generation: generation.0,
                rank: rank.0,
                node: node.to_string(),
            }),
            Entity::Job { job } => Kind::Job(WholeJob { job: job.to_string() }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Entity> for Entity {
    type Error = WireError;

    fn try_from(entity: v1::Entity) -> Result<Self, WireError> {
        Ok(match entity.kind.ok_or_else(|| WireError::absent("kind"))? {
            Kind::Unknown(Unknown {}) => Self::Unknown,
            Kind::Node(WholeNode { node }) => Self::Node {
                node: NodeId::from(name("node.node", node)?),
            },
            Kind::Device(NodeDevice { node, device }) => Self::Device {
                node: NodeId::from(name("device.node", node)?),
                device: required("device.device", device)?,
            },
            Kind::Rank(JobRank {
                job,
                generation,
                rank,
                node,
            }) => Self::Rank {
                job: JobId::from(name("rank.job", job)?),
                generation: Generation(generation),
                rank: Rank(rank),
                node: NodeId::from(name("rank.node", node)?),
            },
            Kind::Job(WholeJob { job }) => Self::Job {
                job: JobId::from(name("job.job", job)?),
            },
        })
    }
}
