//! Entities: the subjects of evidence and the blamed parties of verdicts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Generation, JobId, NodeId, Rank};

/// Device types that a finding can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Accelerator of any vendor.
    Gpu,
    /// Network adapter or one of its ports.
    Nic,
    /// Switch of the GPU fabric.
    Nvswitch,
    /// Local disk of the node.
    Disk,
}

/// Device of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Type of the device.
    pub kind: DeviceKind,
    /// Address on the node: a PCI address such as `0000:9b:00`, or a device name such as `mlx5_0` or `nvme0n1`.
    pub address: String,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::Gpu => "gpu",
            DeviceKind::Nic => "nic",
            DeviceKind::Nvswitch => "nvswitch",
            DeviceKind::Disk => "disk",
        };
        write!(f, "{kind} {}", self.address)
    }
}

/// Subject of evidence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entity {
    /// No narrower subject is known.
    Unknown,
    /// The node as a whole.
    Node {
        /// Name of the node.
        node: NodeId,
    },
    /// Device of a node.
    Device {
        /// Node that holds the device.
        node: NodeId,
        /// Device on that node.
        device: Device,
    },
    /// Rank of one generation of a job.
    Rank {
        /// Job of the rank.
        job: JobId,
        /// Generation of the rank.
        generation: Generation,
        /// Rank number in that generation.
        rank: Rank,
        /// Node on which the rank runs.
        node: NodeId,
    },
    /// Whole job: its program, data and configuration.
    Job {
        /// Name of the job.
        job: JobId,
    },
}

impl Entity {
    /// Returns the node of a node, device or rank.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Self::Node { node } | Self::Device { node, .. } | Self::Rank { node, .. } => Some(node),
            Self::Unknown | Self::Job { .. } => None,
        }
    }

    /// Returns the job of a job or rank.
    pub fn job(&self) -> Option<&JobId> {
        match self {
            Self::Rank { job, .. } | Self::Job { job } => Some(job),
            Self::Unknown | Self::Node { .. } | Self::Device { .. } => None,
        }
    }

    /// Returns the rank number if the entity is a rank.
    pub fn rank(&self) -> Option<Rank> {
        match self {
            Self::Rank { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Node { node } => write!(f, "node {node}"),
            Self::Device { node, device } => write!(f, "node {node}, {device}"),
            Self::Rank {
                job,
                generation,
                rank,
                node,
            } => {
                write!(f, "job {job}, rank {rank} on node {node} (generation {generation})")
            }
            Self::Job { job } => write!(f, "job {job}"),
        }
    }
}
