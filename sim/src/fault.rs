//! Faults as data.

use serde::{Deserialize, Serialize};

/// Remains of the images of a lost node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SurvivingImages {
    /// Shards in the store.
    Shards,
    /// Copies on another node.
    Copies,
    /// No shard and no copy.
    Nothing,
}

/// Fault injected into the simulated world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what", deny_unknown_fields)]
pub enum ScriptedFault {
    /// A GPU falls off the bus: XID 79, a burst of XID 45, the node's ranks abort.
    GpuLost { node: String },
    /// A node stops: its agent falls silent; its ranks and its arenas are lost.
    NodeLost { node: String },
    /// A node stops like `NodeLost`, at the time at which its ranks have sealed a step and its agent has not reported
    /// it.
    NodeLostUntold {
        node: String,
        step: u64,
        /// Remains of its images.
        left: SurvivingImages,
    },
    /// A lost node comes back, without ranks and images.
    NodeBack { node: String },
    /// The kernel's OOM killer kills one rank.
    HostOom { rank: u32 },
    /// A rank is killed without any log line.
    RankKilled { rank: u32 },
    /// From now on, a rank raises the same exception whenever it reaches a step.
    UserBug {
        rank: u32,
        /// Step at which it raises.
        step: u64,
    },
    /// A GPU reports a growing rate of corrected memory errors; nothing fails yet.
    EccGrows { node: String },
    /// From a step on, a node computes wrong values without any error message.
    NodeCorrupt {
        node: String,
        /// First step with wrong values.
        step: u64,
    },
    /// Orders to a node are delayed from now on.
    OrdersSlow {
        node: String,
        /// Delay of each order, milliseconds.
        delay_ms: u64,
    },
    /// An operator cordons a node.
    Cordoned { node: String },
    /// The controller is killed and restarts from its journal.
    ControllerRestart,
}
