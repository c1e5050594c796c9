//! What an operator sees: the controller's state as plain data, the same for tables, JSON and reports.

use serde::{Deserialize, Serialize};

use crate::{
    CaseId, CheckpointCounts, Generation, JobId, JobSpec, NodeId, Placement, Rank, RunId, RunStart, Step, Timestamp,
};

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// The moment.
    pub at: Timestamp,
    /// The nodes, by name.
    pub nodes: Vec<NodeView>,
    /// Lives of the nodes, oldest first, for a Gantt chart.
    pub node_spans: Vec<Span>,
    /// The jobs, by name.
    pub jobs: Vec<JobView>,
    /// Cases that are not closed or recovered.
    pub open_cases: Vec<CaseId>,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Its agent speaks and it may be used.
    Healthy,
    /// Its agent speaks, but nothing new is placed on it.
    Cordoned,
    /// Its agent has been silent beyond the limit.
    Lost,
    /// Its agent speaks and has not confirmed yet that ranks of an ended generation are gone; it takes no work until then.
    Fencing,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub node: NodeId,
    /// Where it stands.
    pub state: NodeState,
    /// Why, when it is not healthy.
    pub reason: Option<String>,
    /// Ranks it can run.
    pub slots: u32,
    /// The job whose ranks it runs, if any.
    pub job: Option<JobId>,
    /// Address at which its agent serves other nodes (`host:port`).
    #[serde(default)]
    pub address: String,
    /// What fails together with it; empty when not told.
    #[serde(default)]
    pub failure_domain: String,
    /// Pieces of evidence of this node that the controller refused, since the node first joined.
    #[serde(default)]
    pub refused_evidence: u64,
    /// Longest time that its ranks run without a sign of the controller, milliseconds; 0 where its agent has no lease.
    #[serde(default)]
    pub lease_ms: u64,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It waits for nodes.
    Pending,
    /// Old ranks are being ended, new ones started.
    Starting,
    /// Its ranks make steps.
    Running,
    /// Something failed; evidence is being gathered or a plan carried out.
    Recovering,
    /// All ranks completed.
    Finished,
    /// It was stopped for good.
    Stopped,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// What was asked for.
    pub spec: JobSpec,
    /// Where it stands.
    pub state: JobState,
    /// Why it was stopped, or what it waits for.
    pub reason: Option<String>,
    /// Its generation.
    pub generation: Generation,
    /// The run that its checkpoint folder belongs to; absent without checkpoints, and for jobs submitted before runs had ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The checkpoint that this attempt of the run started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<RunStart>,
    /// Where its ranks run.
    pub placements: Vec<Placement>,
    /// Newest step that was reported.
    pub step: Option<Step>,
    /// Committed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointView>,
    /// The newest step that is on its way into the store: sealed by all ranks and not committed yet.
    #[serde(default)]
    pub saving: Option<Step>,
    /// Checkpoints by what became of them.
    #[serde(default)]
    pub checkpoint_counts: CheckpointCounts,
    /// Shards that were lost to a checkpoint: skipped or replaced for want of memory, called too late, or not written. Each
    /// makes one attempt void.
    #[serde(default)]
    pub void_shards: u64,
    /// Why the newest of them was lost.
    #[serde(default)]
    pub void_reason: Option<String>,
    /// Copies, of images or of whole checkpoints, that could not be made.
    #[serde(default)]
    pub copies_failed: u64,
    /// Why the newest of them could not.
    #[serde(default)]
    pub copy_reason: Option<String>,
    /// Ranks that are slower than the others, slowest first.
    #[serde(default)]
    pub stragglers: Vec<StragglerView>,
    /// Nodes that have not confirmed that ranks of its ended generations are gone.
    #[serde(default)]
    pub unconfirmed: Vec<UnconfirmedNode>,
    /// Progress, thinned, oldest first.
    pub progress: Vec<ProgressPoint>,
    /// States of its ranks and nodes over time, for a Gantt chart.
    pub spans: Vec<Span>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it finished or was stopped.
    pub ended_at: Option<Timestamp>,
}

/// A node on which processes of an ended generation may still run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnconfirmedNode {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub state: NodeState,
    /// Since when its answer is missing.
    pub since: Timestamp,
    /// What the controller knows of it, in words.
    pub reason: String,
    /// Processes that its agent could not end.
    #[serde(default)]
    pub left: Vec<String>,
    /// Whether it has been away for longer than its lease, within which its agent ends the ranks.
    #[serde(default)]
    pub is_lease_over: bool,
}

/// A rank that has been slower than the others for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StragglerView {
    /// The rank.
    pub rank: Rank,
    /// Where it runs.
    pub node: NodeId,
    /// What its steps take, median, milliseconds.
    pub step_ms: f64,
    /// What the steps of all ranks take, median.
    pub usual_ms: f64,
    /// Since when.
    pub since: Timestamp,
}

/// One committed checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// Its step.
    pub step: Step,
    /// The generation that wrote it.
    pub generation: Generation,
    /// Ranks that wrote it.
    pub world_size: u32,
    /// Size of all shards, bytes.
    pub bytes: u64,
    /// When it was committed.
    pub committed_at: Timestamp,
    /// How long each rank waited for it, milliseconds, by rank.
    pub stall_ms: Vec<(Rank, f64)>,
    /// Images of it that came to the memory of another node.
    #[serde(default)]
    pub copied: u32,
    /// Images of it that are in a parity in the memory of another node, each counted once for every parity. All lost ones can
    /// come back from as many parities as the job asks for when each of its images is in each of them.
    #[serde(default)]
    pub in_parity: u32,
    /// When all of it was in the object store.
    #[serde(default)]
    pub mirrored_at: Option<Timestamp>,
}

/// One reported step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProgressPoint {
    /// When it was completed.
    pub at: Timestamp,
    /// The generation.
    pub generation: Generation,
    /// The step.
    pub step: Step,
    /// Its loss, where told.
    pub loss: Option<f64>,
    /// Its wall time, milliseconds.
    pub step_ms: f64,
}

/// A stretch of time in one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The node.
    pub node: NodeId,
    /// The rank, or absent for the node itself.
    pub rank: Option<Rank>,
    /// The generation, for a rank.
    pub generation: Option<Generation>,
    /// `starting`, `running`, `failed`, `ended`, `spare`, `cordoned`, `lost`, `healthy`.
    pub state: String,
    /// From when.
    pub from: Timestamp,
    /// Until when; absent while it lasts.
    pub to: Option<Timestamp>,
}
