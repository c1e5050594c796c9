//! Jobs, the nodes they run on and the ranks they consist of.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;

use serde::{Deserialize, Serialize};

use crate::{ClockOffset, Generation, JobId, NodeHistory, NodeId, Rank, ResumeSource, Retention, Step};

/// How many nodes a job may run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRange {
    /// Fewest nodes it can make progress on.
    pub min: u32,
    /// Most nodes it can use.
    pub max: u32,
}

/// What the user asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its name.
    pub id: JobId,
    /// Program and arguments; each rank runs one.
    pub command: Vec<String>,
    /// Extra environment of the ranks.
    pub env: BTreeMap<String, String>,
    /// Working directory of the ranks; the agent's own when absent.
    pub workdir: Option<String>,
    /// Nodes it may run on.
    pub nodes: NodeRange,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// How it is checkpointed; absent when it does that itself or not at all.
    pub checkpoint: Option<CheckpointPolicy>,
    /// Failures of one class that are retried before the job is stopped, per class.
    pub max_restarts: u32,
    /// Local user that the ranks run as; the agent's `rank_user` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The checkpoints that it starts from; a start from nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<ResumeSource>,
}

/// When checkpoints are taken and where they go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    /// A checkpoint after every so many steps; all ranks agree on the step without a message.
    pub every_steps: u64,
    /// Directory of the checkpoint store, the same on every node.
    pub store: String,
    /// Committed checkpoints to keep, at least 1.
    pub keep: u32,
    /// What else stays; its `last` is `keep`.
    #[serde(default)]
    pub retention: Retention,
    /// How images get to the store, and where they go besides.
    #[serde(default, rename = "copies")]
    pub tiers: CheckpointTiers,
}

/// Tiers of a job: how images get to the checkpoint store, and where they go besides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointTiers {
    /// Other nodes of the job that keep each image in memory, in other failure domains where there are some.
    pub nodes: u32,
    /// Object store that every committed checkpoint is mirrored to (`s3://bucket/run-7`).
    pub mirror: Option<String>,
    /// Parity of the images in the memory of other nodes of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parity: Option<CheckpointParity>,
    /// What a commit waits for.
    #[serde(default, skip_serializing_if = "CommitLevel::is_durable")]
    pub commit: CommitLevel,
    /// Most memory that a rank's image passes through on its way to the store, bytes; it is held whole when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<NonZero<u64>>,
}

impl CheckpointTiers {
    /// Why it cannot be, in words that say what to do; `None` where it can.
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

/// What of each image must have come to its end before a checkpoint is committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitLevel {
    /// It is in the store.
    #[default]
    Durable,
    /// It is in the store, and every copy and every parity of it that was asked for is made, or has failed and was told to have.
    /// A checkpoint that is only durable is worth more than none, so a copy that fails makes none void.
    Replicated,
}

impl CommitLevel {
    /// Whether it waits for the store alone.
    pub fn is_durable(&self) -> bool {
        *self == Self::Durable
    }
}

/// Parity over the images of a group of nodes, kept by nodes outside of it: XOR for one parity, Reed-Solomon for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointParity {
    /// Most nodes of a group, at least 1. Groups share the nodes of the job evenly; any number of nodes will do.
    pub nodes: u32,
    /// Parities of each group, at least 1: so many of the group's nodes and of those that keep its parity may be lost.
    pub parities: u32,
}

/// One rank's place in a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Rank in the world.
    pub rank: Rank,
    /// Rank on its node.
    pub local_rank: u32,
    /// Its node.
    pub node: NodeId,
}

/// A rank of one generation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RankRef {
    /// Its job.
    pub job: JobId,
    /// Its generation.
    pub generation: Generation,
    /// Its rank.
    pub rank: Rank,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
}

impl Exit {
    /// Whether it ended as it should.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code a shell would report: 128 + signal for a signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal} (exit code {})", 128 + signal),
        }
    }
}

/// A rank that an agent says is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRank {
    /// Which one.
    pub rank: RankRef,
    /// Its process id.
    pub pid: u32,
    /// Newest step it reported.
    pub step: Option<Step>,
}

/// What an agent says of its node when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The node's name.
    pub node: NodeId,
    /// Differs for every start of the agent.
    pub incarnation: String,
    /// Address at which other nodes reach it (host or IP, no port).
    pub host: String,
    /// Address of the agent's peer service (`host:port`).
    pub peer_address: String,
    /// Address at which the agent takes and gives images (`host:port`).
    #[serde(default)]
    pub image_address: String,
    /// Ranks it can run at once.
    pub slots: u32,
    /// What fails together with it (rack, switch, power feed); empty when not told.
    pub failure_domain: String,
    /// Ranks that run there now.
    pub running: Vec<RunningRank>,
    /// The node's clock against the controller's.
    pub clock: ClockOffset,
    /// Longest time that ranks run without a sign of the controller, milliseconds; 0 where the agent has no lease.
    #[serde(default)]
    pub lease_ms: u64,
    /// What its state directory remembers.
    #[serde(default, skip_serializing_if = "NodeHistory::is_empty")]
    pub history: NodeHistory,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Journals of before it was called so are read, and written as before.
    #[test]
    fn tiers_of_a_job_are_copies_in_journals() {
        let text = r#"{"every_steps":10,"store":"/ck","keep":2,"copies":{"nodes":1,"mirror":null}}"#;
        let policy: CheckpointPolicy = serde_json::from_str(text).expect("a policy of before");
        assert_eq!(policy.tiers.nodes, 1);
        let written = serde_json::to_string(&policy).expect("JSON");
        assert!(written.contains(r#""copies":{"nodes":1"#), "{written}");
    }
}
