//! Simulation scripts in TOML: a cluster, its job and its faults.

use rankguard_core::{Policy, RULES};
use serde::{Deserialize, Serialize};

use crate::ScriptedFault;

/// Simulated cluster, its job and its faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultScript {
    /// Purpose of the script, for readers.
    pub title: String,
    /// Seed of all random delays.
    pub seed: u64,
    /// Names of all nodes.
    pub nodes: Vec<String>,
    /// Ranks that each node can run, and that the job places on it.
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
    /// Stall of a rank for an image, milliseconds; default 1.
    #[serde(default = "one")]
    pub stall_ms: u64,
    /// Other nodes that hold a copy of each image.
    #[serde(default)]
    pub copies: u32,
    /// End of the simulation, milliseconds.
    pub end_ms: u64,
    /// Settings of the decision core; the newest decision rules apply unless it names others.
    #[serde(default)]
    pub policy: Policy,
    /// Faults with their times.
    #[serde(default, rename = "fault")]
    pub faults: Vec<TimedFault>,
}

fn one() -> u64 {
    1
}

/// Fault with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFault {
    /// Milliseconds after the start of the simulation.
    pub at_ms: u64,
    /// Fault to inject.
    #[serde(flatten)]
    pub fault: ScriptedFault,
}

/// Error in a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The text is not TOML, or not a script; the message names line and key.
    #[error("read the script: {0}")]
    Toml(#[from] toml::de::Error),
    /// A fault names a node that the script does not define.
    #[error("fault at {at_ms} ms names node `{node}`, which is not among `nodes`")]
    NoSuchNode {
        /// Time of the fault, milliseconds.
        at_ms: u64,
        /// Name of the undefined node.
        node: String,
    },
    /// The sizes of the job are out of range.
    #[error("want 1 <= nodes_min <= nodes_max, ranks_per_node >= 1, steps >= 1 and step_ms >= 1")]
    Sizes,
}

impl FaultScript {
    /// Parses and validates a script.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut script: Self = toml::from_str(text)?;
        if script.policy.rules == 0 {
            script.policy.rules = RULES;
        }
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
                ScriptedFault::GpuLost { node }
                | ScriptedFault::NodeLost { node }
                | ScriptedFault::NodeLostUntold { node, .. }
                | ScriptedFault::NodeBack { node }
                | ScriptedFault::EccGrows { node }
                | ScriptedFault::NodeCorrupt { node, .. }
                | ScriptedFault::OrdersSlow { node, .. }
                | ScriptedFault::Cordoned { node } => node,
                ScriptedFault::HostOom { .. }
                | ScriptedFault::RankKilled { .. }
                | ScriptedFault::UserBug { .. }
                | ScriptedFault::ControllerRestart => {
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
