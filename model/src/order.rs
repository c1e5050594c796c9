//! Orders: what the controller asks of an agent. Each carries its generation; an agent refuses a stale one (RG-3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CheckpointTiers, Generation, JobId, NodeId, Rank, Stays, Step};

/// What an agent is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "orders are few and are moved once")]
pub enum Order {
    /// End every rank of older generations, refuse their seals, answer with `Body::Fenced`.
    Fence {
        /// The job.
        job: JobId,
        /// The generation that may act from now on.
        generation: Generation,
        /// Whether to reserve a TCP port for the job's rendezvous.
        reserve_port: bool,
        /// Nodes that may read and write images of the job: those of the generation, and those of the one that trained last.
        /// Empty from a controller of before: then nothing is known of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<NodeId>,
    },
    /// Look whether this node has what the job needs, and answer with `Body::Preflighted`.
    Preflight(Preflight),
    /// Start ranks.
    Launch(Launch),
    /// A checkpoint was committed: keep its images in memory, free older ones.
    Keep {
        /// The job.
        job: JobId,
        /// The generation that wrote it.
        generation: Generation,
        /// Its step.
        step: Step,
        /// What the job's rules leave; an object store that the job is mirrored to keeps this and no more. `None` where
        /// nobody has said: then nothing is removed there.
        stays: Option<Stays>,
    },
    /// Bring to the store what ranks of the generation before have sealed and nobody has told, and answer with
    /// `Body::ShardsFinished`: the ranks are gone, and what is whole of their work is committed before the next ones start.
    Finish(Finish),
    /// End the ranks of a job: SIGTERM, then SIGKILL after the grace. Answered with `Body::Stopped`.
    Stop {
        /// The job.
        job: JobId,
        /// Its generation.
        generation: Generation,
        /// Time between SIGTERM and SIGKILL, milliseconds.
        grace_ms: u64,
    },
    /// Checkpoint a step that lies ahead, or from a step on as often as this. A rank that hears too late takes no image
    /// of that step and says so.
    Checkpoint {
        /// The job.
        job: JobId,
        /// Its generation.
        generation: Generation,
        /// Number of the call within the generation; of two rules the later holds.
        number: u64,
        /// What is called.
        call: CheckpointCall,
    },
}

/// Which steps the ranks checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum CheckpointCall {
    /// This one, besides those of the rule.
    At {
        /// The step.
        step: Step,
    },
    /// A new rule: from a step on, every multiple of a number.
    Every {
        /// The first step that the rule may name.
        from: Step,
        /// Steps between checkpoints; 0 for none.
        every: u64,
    },
}

impl Order {
    /// The job and generation it belongs to.
    pub fn fence(&self) -> (&JobId, Generation) {
        match self {
            Self::Fence { job, generation, .. }
            | Self::Keep { job, generation, .. }
            | Self::Stop { job, generation, .. }
            | Self::Checkpoint { job, generation, .. } => (job, *generation),
            Self::Preflight(wanted) => (&wanted.job, wanted.generation),
            Self::Finish(wanted) => (&wanted.job, wanted.generation),
            Self::Launch(launch) => (&launch.job, launch.generation),
        }
    }
}

/// Which sealed images are to come to the store, and out of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// The job.
    pub job: JobId,
    /// The generation that acts now and has not started yet.
    pub generation: Generation,
    /// The generation that sealed the images.
    pub of: Generation,
    /// Images of later steps than this, the newest that is committed.
    pub after: Option<Step>,
    /// Directory of the checkpoint store.
    pub store: String,
    /// Where the images are.
    pub from: HeldIn,
    /// The other agents, where images are made out of what they have.
    pub peers: Vec<Peer>,
}

/// Where an agent has images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldIn {
    /// The arenas of its own ranks, also those that an agent before it has left.
    Arenas,
    /// Copies of other nodes' images.
    Copies,
    /// Parity over images of other nodes.
    Parity,
}

/// What a job needs of each node before its ranks start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preflight {
    /// The job.
    pub job: JobId,
    /// The generation that is to start.
    pub generation: Generation,
    /// Program and arguments of its ranks.
    pub command: Vec<String>,
    /// Extra environment of its ranks.
    pub env: BTreeMap<String, String>,
    /// Working directory of its ranks; the agent's own when absent.
    pub workdir: Option<String>,
    /// Folders that it writes into.
    pub write_paths: Vec<String>,
    /// Longest wait for anything that may not answer, milliseconds.
    pub deadline_ms: u64,
    /// The nodes of the job, where this one is to have the ways between them measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub between: Vec<Peer>,
    /// The nodes that may measure with this one, where the ways between the nodes of the job are measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Peer>,
}

/// The ranks of one node in one generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The job.
    pub job: JobId,
    /// The generation these ranks belong to.
    pub generation: Generation,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Extra environment.
    pub env: BTreeMap<String, String>,
    /// Working directory; the agent's own when absent.
    pub workdir: Option<String>,
    /// Ranks in the whole job.
    pub world_size: u32,
    /// This node's position among the job's nodes (GROUP_RANK).
    pub group_rank: u32,
    /// The ranks to start here.
    pub ranks: Vec<RankSlot>,
    /// Host of rank 0 (MASTER_ADDR).
    pub master_addr: String,
    /// Port reserved on the host of rank 0 (MASTER_PORT).
    pub master_port: u16,
    /// Generations before this one (TORCHELASTIC_RESTART_COUNT).
    pub restart_count: u32,
    /// How often the job may be restarted (TORCHELASTIC_MAX_RESTARTS).
    pub max_restarts: u32,
    /// Steps between checkpoints; 0 without checkpoints.
    pub checkpoint_every: u64,
    /// Directory of the checkpoint store; empty without checkpoints.
    pub checkpoint_store: String,
    /// Where to start from; absent for a fresh start.
    pub restore: Option<RestorePoint>,
    /// Agents that may hold chunks in memory.
    pub peers: Vec<Peer>,
    /// Nodes of this generation, by their position in it.
    pub nodes: Vec<NodeId>,
    /// How images get to the store, and where they go besides.
    #[serde(rename = "copies")]
    pub tiers: CheckpointTiers,
    /// Local user that the ranks run as; the agent's `rank_user` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// One rank to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSlot {
    /// Its rank in the world.
    pub rank: Rank,
    /// Its rank on the node.
    pub local_rank: u32,
}

/// A committed checkpoint to start from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestorePoint {
    /// Its step.
    pub step: Step,
    /// The generation that wrote it.
    pub generation: Generation,
}

/// Another agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its node.
    pub node: NodeId,
    /// Where it answers (`host:port`): about images in a launch, about the ways between nodes in a preflight.
    pub address: String,
    /// What fails together with it; empty when not told.
    pub failure_domain: String,
}
