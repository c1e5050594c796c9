//! Orders of the controller to agents. Each carries its generation; an agent refuses a stale one (RG-3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CheckpointTiers, Generation, JobId, NodeId, Rank, RetainedSet, StandbyPolicy, Step};

/// Order to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "orders are few and are moved once")]
pub enum AgentOrder {
    /// End every rank of older generations and refuse their seals. Answered with `Body::Fenced`.
    Fence {
        /// Job to fence.
        job: JobId,
        /// Generation that may act from now on.
        generation: Generation,
        /// True if the agent must reserve a TCP port for the job's rendezvous.
        reserve_port: bool,
        /// Nodes that may read and write images of the job: those of this generation and of the one that trained last.
        /// Empty from controllers of earlier versions: the members are unknown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<NodeId>,
    },
    /// Check that this node meets the job's requirements. Answered with `Body::Preflighted`.
    Preflight(PreflightOrder),
    /// Start the ranks of one node.
    Launch(LaunchOrder),
    /// Start standby processes on a node that a job may take in, or end them. Answered with `Body::Prepared` once their
    /// modules are imported.
    Prepare(PrepareOrder),
    /// A checkpoint was committed: retain its images in memory, free older ones.
    Keep {
        /// Job of the checkpoint.
        job: JobId,
        /// Generation that wrote it.
        generation: Generation,
        /// Step of the checkpoint.
        step: Step,
        /// Checkpoints that the job's retention rules leave; the mirror removes all others. `None` if unknown: then the
        /// mirror removes nothing.
        stays: Option<RetainedSet>,
    },
    /// Write to the store the shards that ranks of the previous generation sealed but did not report. Answered with
    /// `Body::ShardsFinished`. The ranks have ended; complete checkpoints are committed before the next ones start.
    Finish(FinishOrder),
    /// End the ranks of a job: SIGTERM, then SIGKILL after the grace period. Answered with `Body::Stopped`.
    Stop {
        /// Job to stop.
        job: JobId,
        /// Generation to stop.
        generation: Generation,
        /// Grace period between SIGTERM and SIGKILL, milliseconds.
        grace_ms: u64,
        /// True if the images of its checkpoints stay in memory, because the job may go on from them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keeps_images: bool,
    },
    /// Checkpoint a future step, or change the interval from a step on. A rank that receives the call too late takes no
    /// image of that step and reports so.
    Checkpoint {
        /// Job of the call.
        job: JobId,
        /// Generation of the call.
        generation: Generation,
        /// Number of the call within the generation; the later of two interval rules applies.
        number: u64,
        /// Steps to checkpoint.
        call: CheckpointCall,
    },
}

/// Selection of the steps that the ranks checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum CheckpointCall {
    /// A single step, in addition to those of the interval rule.
    At {
        /// Step to checkpoint.
        step: Step,
    },
    /// New interval rule: from a step on, every multiple of a number.
    Every {
        /// First step to which the rule applies.
        from: Step,
        /// Steps between checkpoints; 0 for none.
        every: u64,
    },
}

impl AgentOrder {
    /// Returns the job and generation of the order.
    pub fn fence(&self) -> (&JobId, Generation) {
        match self {
            Self::Fence { job, generation, .. }
            | Self::Keep { job, generation, .. }
            | Self::Stop { job, generation, .. }
            | Self::Checkpoint { job, generation, .. } => (job, *generation),
            Self::Preflight(wanted) => (&wanted.job, wanted.generation),
            Self::Finish(wanted) => (&wanted.job, wanted.generation),
            Self::Launch(launch) => (&launch.job, launch.generation),
            Self::Prepare(wanted) => (&wanted.job, wanted.generation),
        }
    }
}

/// Order to write sealed images to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishOrder {
    /// Job of the images.
    pub job: JobId,
    /// Generation that acts now and has not started yet.
    pub generation: Generation,
    /// Generation that sealed the images.
    pub of: Generation,
    /// Newest committed step; only images of later steps are written.
    pub after: Option<Step>,
    /// Directory of the checkpoint store.
    pub store: String,
    /// Place of the images.
    pub from: ImageLocation,
    /// Other agents, for images that are rebuilt from data on several nodes.
    pub peers: Vec<PeerAgent>,
}

/// Place of images on an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageLocation {
    /// Arenas of its own ranks, including those that an earlier agent process left.
    Arenas,
    /// Copies of other nodes' images.
    Copies,
    /// Parity over images of other nodes.
    Parity,
}

/// Requirements of a job that each node checks before ranks start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreflightOrder {
    /// Job to be started.
    pub job: JobId,
    /// Generation that is to start.
    pub generation: Generation,
    /// Program and arguments of the ranks.
    pub command: Vec<String>,
    /// Additional environment variables of the ranks.
    pub env: BTreeMap<String, String>,
    /// Working directory of the ranks; default: that of the agent.
    pub workdir: Option<String>,
    /// Directories that the job writes to.
    pub write_paths: Vec<String>,
    /// Time limit of each check that may not answer, milliseconds.
    pub deadline_ms: u64,
    /// Nodes of the job; not empty if this node measures the network links between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub between: Vec<PeerAgent>,
    /// Nodes that may measure links with this one, if the links between the job's nodes are measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PeerAgent>,
}

/// Order to start the standby processes that become the ranks of a node at its first launch of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareOrder {
    /// Job that may take in the node.
    pub job: JobId,
    /// Generation that runs on other nodes.
    pub generation: Generation,
    /// Program and arguments of the ranks.
    pub command: Vec<String>,
    /// Additional environment variables of the ranks.
    pub env: BTreeMap<String, String>,
    /// Working directory of the ranks; default: that of the agent.
    pub workdir: Option<String>,
    /// Local user of the ranks; default: the agent's `rank_user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Processes to start, one for each rank of the node; absent if those of the job are to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<StandbyPolicy>,
}

/// Order to start the ranks of one node in one generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// Job of the ranks.
    pub job: JobId,
    /// Generation of the ranks.
    pub generation: Generation,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// Working directory; default: that of the agent.
    pub workdir: Option<String>,
    /// Ranks in the whole job.
    pub world_size: u32,
    /// Position of this node among the job's nodes (GROUP_RANK).
    pub group_rank: u32,
    /// Ranks to start on this node.
    pub ranks: Vec<RankSlot>,
    /// Host of rank 0 (MASTER_ADDR).
    pub master_addr: String,
    /// Port reserved on the host of rank 0 (MASTER_PORT).
    pub master_port: u16,
    /// Generations before this one (TORCHELASTIC_RESTART_COUNT).
    pub restart_count: u32,
    /// Restart limit of the job (TORCHELASTIC_MAX_RESTARTS).
    pub max_restarts: u32,
    /// Steps between checkpoints; 0 without checkpoints.
    pub checkpoint_every: u64,
    /// Directory of the checkpoint store; empty without checkpoints.
    pub checkpoint_store: String,
    /// Checkpoint to start from; absent for a start from scratch.
    pub restore: Option<RestorePoint>,
    /// Agents that may hold chunks in memory.
    pub peers: Vec<PeerAgent>,
    /// Nodes of this generation, in group order.
    pub nodes: Vec<NodeId>,
    /// Tiers that hold images and checkpoints besides the store.
    #[serde(rename = "copies")]
    pub tiers: CheckpointTiers,
    /// Local user of the ranks; default: the agent's `rank_user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Standby processes of the node; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<StandbyPolicy>,
}

/// Rank to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSlot {
    /// Rank in the world.
    pub rank: Rank,
    /// Rank on the node.
    pub local_rank: u32,
}

/// Committed checkpoint to start from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestorePoint {
    /// Step of the checkpoint.
    pub step: Step,
    /// Generation that wrote it.
    pub generation: Generation,
}

/// Address of another agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAgent {
    /// Node of the agent.
    pub node: NodeId,
    /// Service address (`host:port`): of the image service in a launch, of link measurement in a preflight.
    pub address: String,
    /// Failure domain of the node; empty if not configured.
    pub failure_domain: String,
}
