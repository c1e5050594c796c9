//! What can break, as data.

use serde::{Deserialize, Serialize};

/// What is left of the images of a node that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Shards in the store.
    Shards,
    /// Copies on another node.
    Copies,
    /// Nothing.
    Nothing,
}

/// One thing that happens to the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what", deny_unknown_fields)]
pub enum Fault {
    /// A GPU falls off the bus: XID 79, a burst of XID 45, the node's ranks abort.
    GpuLost {
        /// The node.
        node: String,
    },
    /// A node stops: its agent falls silent, its ranks are gone, its arenas too.
    NodeLost {
        /// The node.
        node: String,
    },
    /// A node stops as `NodeLost` does, at the moment at which its ranks have sealed a step and its agent has told nobody.
    NodeLostUntold {
        /// The node.
        node: String,
        /// The step.
        step: u64,
        /// What is left of its images.
        left: Left,
    },
    /// A node that was lost comes back, empty.
    NodeBack {
        /// The node.
        node: String,
    },
    /// The kernel kills one rank for want of memory.
    HostOom {
        /// The rank.
        rank: u32,
    },
    /// Something kills one rank and leaves no word about it.
    RankKilled {
        /// The rank.
        rank: u32,
    },
    /// From now on, a rank raises the same exception whenever it reaches a step.
    UserBug {
        /// The rank.
        rank: u32,
        /// The step.
        step: u64,
    },
    /// A GPU corrects more and more memory errors: nothing fails yet.
    EccGrows {
        /// The node.
        node: String,
    },
    /// From a step on, a node computes something else, and nothing says so.
    NodeCorrupt {
        /// The node.
        node: String,
        /// The step.
        step: u64,
    },
    /// Orders to a node take long from now on.
    OrdersSlow {
        /// The node.
        node: String,
        /// How long, milliseconds.
        delay_ms: u64,
    },
    /// An operator takes a node out of use.
    Cordoned {
        /// The node.
        node: String,
    },
    /// The controller is killed and reads its journal again.
    ControllerRestart,
}
