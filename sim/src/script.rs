//! Scripts: a world and its hardship as TOML.

use rankguard_core::Policy;
use serde::{Deserialize, Serialize};

use crate::Fault;

/// A world and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What it shows, for people.
    pub title: String,
    /// Decides every delay.
    pub seed: u64,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Ranks each node can run, and the job places on it.
    pub ranks_per_node: u32,
    /// Fewest nodes of the job.
    pub nodes_min: u32,
    /// Most nodes of the job.
    pub nodes_max: u32,
    /// Steps of the job.
    pub steps: u64,
    /// Virtual time of one step, milliseconds.
    pub step_ms: u64,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// How long a rank waits for an image, milliseconds.
    #[serde(default = "one")]
    pub stall_ms: u64,
    /// Other nodes that keep each image.
    #[serde(default)]
    pub copies: u32,
    /// The world ends after so long, milliseconds.
    pub end_ms: u64,
    /// Settings of the brain.
    #[serde(default)]
    pub policy: Policy,
    /// What breaks, when.
    #[serde(default, rename = "fault")]
    pub faults: Vec<Moment>,
}

fn one() -> u64 {
    1
}

/// A fault with its moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Milliseconds after the world's beginning.
    pub at_ms: u64,
    /// What breaks.
    #[serde(flatten)]
    pub fault: Fault,
}

/// Why a script cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It is not TOML, or not a script; the message names line and key.
    #[error("read the script: {0}")]
    Toml(#[from] toml::de::Error),
    /// A fault names a node that is not there.
    #[error("fault at {at_ms} ms names node `{node}`, which is not among `nodes`")]
    NoSuchNode {
        /// Its moment.
        at_ms: u64,
        /// The name.
        node: String,
    },
    /// The job does not fit.
    #[error("want 1 <= nodes_min <= nodes_max, ranks_per_node >= 1, steps >= 1 and step_ms >= 1")]
    Sizes,
}

impl Script {
    /// Reads a script.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = toml::from_str(text)?;
        if script.nodes_min < 1
            || script.nodes_max < script.nodes_min
            || script.ranks_per_node < 1
            || script.steps < 1
            || script.step_ms < 1
        {
            return Err(ScriptError::Sizes);
        }
        for moment in &script.faults {
            let node = match &moment.fault {
                Fault::GpuLost { node }
                | Fault::NodeLost { node }
                | Fault::NodeLostUntold { node, .. }
                | Fault::NodeBack { node }
                | Fault::EccGrows { node }
                | Fault::NodeCorrupt { node, .. }
                | Fault::OrdersSlow { node, .. }
                | Fault::Cordoned { node } => node,
                Fault::HostOom { .. } | Fault::RankKilled { .. } | Fault::UserBug { .. } | Fault::ControllerRestart => {
                    continue;
                }
            };
            if !script.nodes.contains(node) {
                return Err(ScriptError::NoSuchNode {
                    at_ms: moment.at_ms,
                    node: node.clone(),
                });
            }
        }
        Ok(script)
    }
}
