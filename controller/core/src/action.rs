//! Actions that the decision core requests from the shell.

use rankguard_checkpoint_format::{CheckpointId, Manifest};
use rankguard_model::{AgentOrder, Generation, JobId, NodeId, OrderId, Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::TimerKey;

/// Chunk of a checkpoint image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkName {
    /// Rank of the image.
    pub rank: Rank,
    /// Chunk number in that image, from 0.
    pub chunk: u32,
}

/// Requested effect. The shell carries it out unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
#[allow(
    clippy::large_enum_variant,
    reason = "actions are moved once, and orders are most of them"
)]
pub enum Action {
    /// Sends an order to a node's agent. The order is dropped if the node has no session; the decision core sends it
    /// again when the node joins.
    SendOrder {
        node: NodeId,
        id: OrderId,
        order: AgentOrder,
    },
    /// Writes a manifest, then removes checkpoints that retention does not keep. Answered with `ManifestCommitted`
    /// (also if the same manifest already exists) or `ManifestRefused`.
    CommitManifest {
        store: String,
        manifest: Manifest,
        /// Newest committed checkpoints to retain.
        keep: u32,
        /// Further checkpoints that the job's retention rules keep.
        pinned: Vec<CheckpointId>,
    },
    /// Lists the shards of an ended generation in a store, regardless of the node that wrote them. Answered with
    /// `ShardsFound`.
    FindShards {
        store: String,
        job: JobId,
        /// Generation that acts now.
        generation: Generation,
        /// Generation that sealed the shards.
        of: Generation,
        /// Only shards of later steps are listed.
        after: Option<Step>,
    },
    /// Reads a checkpoint that a node reported as damaged. Answered with `CheckpointChecked`.
    CheckCheckpoint {
        store: String,
        job: JobId,
        id: CheckpointId,
        /// Chunk that the report names; without one only the manifest and the indexes are read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<ChunkName>,
    },
    /// Sets a timer at a time of the controller's clock; a time in the past fires at once.
    SetTimer { timer: TimerKey, at: Timestamp },
    /// Notifies operators through the log.
    Announce { text: String },
}
