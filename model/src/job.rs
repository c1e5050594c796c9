//! Jobs, their nodes and their ranks.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;

use serde::{Deserialize, Serialize};

use crate::{
    ClockOffset, Generation, JobId, NodeHistory, NodeId, Rank, ResumeSource, RetentionPolicy, StandbyPolicy, Step,
};

/// Allowed number of nodes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRange {
    /// Fewest nodes with which the job can make progress.
    pub min: u32,
    /// Most nodes that the job can use.
    pub max: u32,
}

/// Environment variables that the agent sets for every rank: a job cannot set them.
pub const RESERVED_VARIABLES: &[&str] = &[
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "RANKGUARD_FENCE",
    "RANKGUARD_GENERATION",
    "RANKGUARD_JOB",
    "RANKGUARD_NODE",
    "RANKGUARD_SOCKET",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "WORLD_SIZE",
];

/// Environment variable of a job, with the value `True`: the agent of rank 0's node serves the `TCPStore` at
/// MASTER_ADDR:MASTER_PORT, and all ranks of torch connect to it as clients.
pub const AGENT_STORE_VARIABLE: &str = "TORCHELASTIC_USE_AGENT_STORE";

/// Job as the user submitted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Name of the job.
    pub id: JobId,
    /// Program and arguments of each rank.
    pub command: Vec<String>,
    /// Additional environment variables of the ranks.
    pub env: BTreeMap<String, String>,
    /// Working directory of the ranks; default: that of the agent.
    pub workdir: Option<String>,
    /// Allowed number of nodes.
    pub nodes: NodeRange,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// Checkpoint settings; absent if the job checkpoints by itself or not at all.
    pub checkpoint: Option<CheckpointPolicy>,
    /// Limit of restarts after failures with the same signature, and of restarts in a row without a new checkpoint;
    /// beyond it the job is stopped.
    pub max_restarts: u32,
    /// Local user of the ranks; default: the agent's `rank_user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Checkpoints to start from; absent for a start from scratch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<ResumeSource>,
    /// Standby processes on each node; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<StandbyPolicy>,
}

/// Checkpoint interval, store and retention of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    /// Steps between checkpoints; all ranks derive the steps from it without a message.
    pub every_steps: u64,
    /// Directory of the checkpoint store, the same on every node.
    pub store: String,
    /// Newest committed checkpoints to retain, at least 1.
    pub keep: u32,
    /// Further retention rules; their `last` is taken from `keep`.
    #[serde(default)]
    pub retention: RetentionPolicy,
    /// Tiers that hold images and checkpoints besides the store.
    #[serde(default, rename = "copies")]
    pub tiers: CheckpointTiers,
}

/// Checkpoint tiers of a job: the way of images to the store, and further copies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointTiers {
    /// Other nodes of the job that hold a copy of each image in memory, in other failure domains where possible.
    pub nodes: u32,
    /// Object store to which every committed checkpoint is mirrored (`s3://bucket/run-7`).
    pub mirror: Option<String>,
    /// Parity of the images in the memory of other nodes of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parity: Option<CheckpointParity>,
    /// Condition for a commit.
    #[serde(default, skip_serializing_if = "CommitLevel::is_durable")]
    pub commit: CommitLevel,
    /// Memory window through which a rank's image passes to the store, bytes; absent: the whole image is held in
    /// memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<NonZero<u64>>,
}

impl CheckpointTiers {
    /// Returns the reason why the settings contradict each other, with advice; `None` if they are valid.
    pub fn problem(&self) -> Option<&'static str> {
        self.window?;
        let held = [
            (
                self.nodes > 0,
                "copies on other nodes need whole images in memory: leave out the window or the copies",
            ),
            (
                self.parity.is_some(),
                "parity needs whole images in memory: leave out the window or the parity",
            ),
        ];
        held.into_iter().find(|(is, _)| *is).map(|(_, why)| why)
    }
}

/// Condition that every image must meet before a checkpoint is committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitLevel {
    /// The image is in the store.
    #[default]
    Durable,
    /// The image is in the store, and every requested copy and parity of it is complete or was reported as failed. A
    /// failed copy voids no checkpoint, because a checkpoint in the store alone is better than none.
    Replicated,
}

impl CommitLevel {
    /// Returns true if commits wait for the store alone.
    pub fn is_durable(&self) -> bool {
        *self == Self::Durable
    }
}

/// Parity over the images of a group of nodes, held by nodes outside the group: XOR for one parity, Reed-Solomon for
/// more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointParity {
    /// Most nodes of a group, at least 1. The job's nodes, in any number, are divided evenly into groups.
    pub nodes: u32,
    /// Parities of each group, at least 1: as many of the group's nodes and parity holders may be lost.
    pub parities: u32,
}

/// Place of one rank in a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlacement {
    /// Rank in the world.
    pub rank: Rank,
    /// Rank on its node.
    pub local_rank: u32,
    /// Node of the rank.
    pub node: NodeId,
}

/// Reference to a rank of one generation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RankRef {
    /// Job of the rank.
    pub job: JobId,
    /// Generation of the rank.
    pub generation: Generation,
    /// Rank in the world.
    pub rank: Rank,
}

/// Exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessExit {
    /// Exit code of the process.
    Code(i32),
    /// Number of the signal that ended the process.
    Signal(i32),
    /// The process has left its generation and waits for another rank.
    Left,
}

impl ProcessExit {
    /// Returns true for exit code 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// Returns the exit code that a shell reports: 128 + signal for a signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            // That of an exception.
            Self::Left => 1,
        }
    }
}

impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal} (exit code {})", 128 + signal),
            Self::Left => f.write_str("its process waits for another rank"),
        }
    }
}

/// Rank that an agent reports as running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRank {
    /// Reference to the rank.
    pub rank: RankRef,
    /// Process id on the node.
    pub pid: u32,
    /// Newest step that the rank reported.
    pub step: Option<Step>,
}

/// Description of a node that its agent sends when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Name of the node.
    pub node: NodeId,
    /// Id of the agent's start; differs for every start.
    pub incarnation: String,
    /// Boot id of the node's kernel; empty if the agent does not report it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Address at which other nodes reach the node (host name or IP, no port).
    pub host: String,
    /// Address of the agent's peer service (`host:port`).
    pub peer_address: String,
    /// Address of the agent's image service (`host:port`).
    #[serde(default)]
    pub image_address: String,
    /// Ranks that the node can run at once.
    pub slots: u32,
    /// Failure domain (rack, switch, power feed); empty if not configured.
    pub failure_domain: String,
    /// Ranks that run on the node now.
    pub running: Vec<RunningRank>,
    /// Offset of the node's clock against the controller's.
    pub clock: ClockOffset,
    /// Lease: longest time that ranks run without contact to the controller, milliseconds; 0 if the agent has no lease.
    #[serde(default)]
    pub lease_ms: u64,
    /// True if the agent reports what the kernel logged before an exit of a rank earlier than the exit; false if it does
    /// not report this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_kernel_log_first: bool,
    /// History from the agent's state directory.
    #[serde(default, skip_serializing_if = "NodeHistory::is_empty")]
    pub history: NodeHistory,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes the name `copies` that earlier journals use for the tiers.
    #[test]
    fn tiers_of_a_job_are_copies_in_journals() {
        let text = r#"{"every_steps":10,"store":"/ck","keep":2,"copies":{"nodes":1,"mirror":null}}"#;
        let policy: CheckpointPolicy = serde_json::from_str(text).expect("a policy of before");
        assert_eq!(policy.tiers.nodes, 1);
        let written = serde_json::to_string(&policy).expect("JSON");
        assert!(written.contains(r#""copies":{"nodes":1"#), "{written}");
    }
}
