//! Everything the brain can ask for.

use rankguard_checkpoint_format::{CheckpointId, Manifest};
use rankguard_model::{Generation, JobId, NodeId, Order, OrderId, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Timer;

/// Something to do. The shell carries it out and never changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
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
