//! Actions that the decision core requests from the controller's event loop.

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

/// Effect that the decision core requests. The event loop carries it out unchanged.
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
    /// Writes a manifest, then removes the checkpoints that retention does not keep. The outcome is `ManifestCommitted`
    /// (also if the same manifest already exists) or `ManifestRefused`.
    CommitManifest {
        store: String,
        manifest: Manifest,
        /// Number of newest committed checkpoints to retain.
        keep: u32,
        /// Further checkpoints to retain by the job's retention rules.
        pinned: Vec<CheckpointId>,
    },
    /// Lists the uncommitted shards of an ended generation in a store, of all nodes. The outcome is `ShardsFound`.
    FindShards {
        store: String,
        job: JobId,
        /// Current generation of the job; the outcome names it.
        generation: Generation,
        /// Generation that sealed the shards.
        of: Generation,
        /// Step after which shards are listed; all without one.
        after: Option<Step>,
    },
    /// Reads a checkpoint that a node reported as damaged. The outcome is `CheckpointChecked`.
    CheckCheckpoint {
        store: String,
        job: JobId,
        id: CheckpointId,
        /// Chunk that the report names; without one only the manifest and the indexes are read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<ChunkName>,
    },
    /// Sets a timer at a time of the controller's clock, in place of an earlier one with the same key. A time in the
    /// past fires at once.
    SetTimer { timer: TimerKey, at: Timestamp },
    /// Writes a message for operators to the controller's log.
    Announce { text: String },
}
