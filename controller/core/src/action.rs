//! Everything the brain can ask for.

use rankguard_checkpoint_format::{CheckpointId, Manifest};
use rankguard_model::{Generation, JobId, NodeId, Order, OrderId, Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Timer;

/// A chunk of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkName {
    /// The rank whose image it belongs to.
    pub rank: Rank,
    /// Its number in that image, from 0.
    pub chunk: u32,
}

/// Something to do. The shell carries it out and never changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
#[allow(
    clippy::large_enum_variant,
    reason = "actions are moved once, and orders are most of them"
)]
pub enum Action {
    /// Send an order to a node's agent. If the node is away it is dropped: the brain sends it again when it joins.
    SendOrder {
        /// To whom.
        node: NodeId,
        /// Its number.
        id: OrderId,
        /// What is ordered.
        order: Order,
    },
    /// Write a manifest, then remove what retention no longer keeps. Answers with `ManifestCommitted` (also when the
    /// same manifest is already there) or `ManifestRefused`.
    CommitManifest {
        /// Directory of the store.
        store: String,
        /// What to commit.
        manifest: Manifest,
        /// Committed checkpoints to keep, the newest.
        keep: u32,
        /// Others that the job's rules keep.
        pinned: Vec<CheckpointId>,
    },
    /// Look which shards of an ended generation stand in a store, whoever wrote them. Answers with `ShardsFound`.
    FindShards {
        /// Directory of the store.
        store: String,
        /// Whose.
        job: JobId,
        /// The generation that acts now.
        generation: Generation,
        /// The generation that sealed them.
        of: Generation,
        /// Of later steps than this.
        after: Option<Step>,
    },
    /// Read a checkpoint that a node has reported damaged. Answers with `CheckpointChecked`.
    CheckCheckpoint {
        /// Directory of the store.
        store: String,
        /// Its job.
        job: JobId,
        /// Which checkpoint.
        id: CheckpointId,
        /// The chunk that the report names; manifest and indexes alone where it names none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<ChunkName>,
    },
    /// Wake the brain at a moment of the controller's clock, or at once if it has passed.
    SetTimer {
        /// What for.
        timer: Timer,
        /// When.
        at: Timestamp,
    },
    /// Tell people.
    Announce {
        /// One sentence.
        text: String,
    },
}
