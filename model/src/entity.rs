//! What a piece of evidence is about, and whom a verdict blames.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Generation, JobId, NodeId, Rank};

/// Kinds of device that a finding can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// An accelerator.
    Gpu,
    /// A network adapter or one of its ports.
    Nic,
    /// A switch of the GPU fabric.
    Nvswitch,
    /// A local disk.
    Disk,
}

/// One device of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// How the node addresses it: a PCI address in the form `0000:9b:00`, a device name such as `mlx5_0` or `nvme0n1`.
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

/// The thing that evidence is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entity {
    /// Nothing narrower is known.
    Unknown,
    /// A node as a whole.
    Node {
        /// Which one.
        node: NodeId,
    },
    /// A device of a node.
    Device {
        /// The node it sits in.
        node: NodeId,
        /// Which device.
        device: Device,
    },
    /// A rank of one generation of a job.
    Rank {
        /// Its job.
        job: JobId,
        /// Its generation.
        generation: Generation,
        /// Its rank in that generation.
        rank: Rank,
        /// The node it runs on.
        node: NodeId,
    },
    /// A job as a whole: its program, its data, its configuration.
    Job {
        /// Which one.
        job: JobId,
    },
}

impl Entity {
    /// The node this entity is, or sits on.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Self::Node { node } | Self::Device { node, .. } | Self::Rank { node, .. } => Some(node),
            Self::Unknown | Self::Job { .. } => None,
        }
    }

    /// The job this entity is, or belongs to.
    pub fn job(&self) -> Option<&JobId> {
        match self {
            Self::Rank { job, .. } | Self::Job { job } => Some(job),
            Self::Unknown | Self::Node { .. } | Self::Device { .. } => None,
        }
    }

    /// The rank, where this entity is one.
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
