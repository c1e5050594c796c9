//! Views for operators: the controller's state as plain data, the same for tables, JSON and reports.

use serde::{Deserialize, Serialize};

use crate::{
    CaseId, CheckpointCounts, Generation, JobId, JobSpec, NodeId, Rank, RankPlacement, RunId, RunStart, Step, Timestamp,
};

/// State of the whole cluster at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Time of the view.
    pub at: Timestamp,
    /// Nodes, by name.
    pub nodes: Vec<NodeView>,
    /// State spans of the nodes, oldest first, for a Gantt chart.
    pub node_spans: Vec<StateSpan>,
    /// Jobs, by name.
    pub jobs: Vec<JobView>,
    /// Cases that are neither closed nor recovered, and cases that await a decision of an operator.
    pub open_cases: Vec<CaseId>,
}

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// The agent is live and the node accepts ranks.
    Healthy,
    /// The agent is live, but no new ranks are placed on the node.
    Cordoned,
    /// The agent has been silent beyond the limit.
    Lost,
    /// The agent is live but has not confirmed that ranks of an ended generation are gone; no ranks are placed on it
    /// until then.
    Fencing,
}

/// View of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Name of the node.
    pub node: NodeId,
    /// State of the node.
    pub state: NodeState,
    /// Reason for a state other than healthy, or the fault of a node that is in use.
    pub reason: Option<String>,
    /// Case that blames the node although it is in use: the cordon limit permitted no cordon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faulty_in_use: Option<CaseId>,
    /// Ranks that the node can run.
    pub slots: u32,
    /// Job that has ranks on the node.
    pub job: Option<JobId>,
    /// Address at which its agent serves other nodes (`host:port`).
    #[serde(default)]
    pub address: String,
    /// Failure domain; empty if not configured.
    #[serde(default)]
    pub failure_domain: String,
    /// Evidence of this node that the controller refused, since the node first joined.
    #[serde(default)]
    pub refused_evidence: u64,
    /// Lease: longest time that its ranks run without contact to the controller, milliseconds; 0 if its agent has no
    /// lease.
    #[serde(default)]
    pub lease_ms: u64,
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// The job waits for nodes.
    Pending,
    /// Old ranks are being ended and new ones started.
    Starting,
    /// The ranks make steps.
    Running,
    /// A failure occurred; evidence is being gathered or a plan carried out.
    Recovering,
    /// All ranks completed.
    Finished,
    /// The job was stopped for good.
    Stopped,
}

/// View of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Specification as it was submitted.
    pub spec: JobSpec,
    /// State of the job.
    pub state: JobState,
    /// Reason for a stop, or the missing condition for which the job waits.
    pub reason: Option<String>,
    /// Current generation of the job.
    pub generation: Generation,
    /// Run that owns its checkpoint folder; absent without checkpoints, and for jobs submitted before runs had ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Checkpoint from which this attempt of the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<RunStart>,
    /// Newer checkpoints that this attempt passed over, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
    /// Places of its ranks.
    pub placements: Vec<RankPlacement>,
    /// Newest reported step.
    pub step: Option<Step>,
    /// Committed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointView>,
    /// Newest step that all ranks have sealed and that is not committed yet.
    #[serde(default)]
    pub saving: Option<Step>,
    /// Counts of checkpoint attempts by outcome.
    #[serde(default)]
    pub checkpoint_counts: CheckpointCounts,
    /// Shards lost to a checkpoint: skipped or replaced because memory was short, called too late, or not written. Each
    /// voids one attempt.
    #[serde(default)]
    pub void_shards: u64,
    /// Cause of the newest loss.
    #[serde(default)]
    pub void_reason: Option<String>,
    /// Copies of images or of whole checkpoints that could not be made.
    #[serde(default)]
    pub copies_failed: u64,
    /// Cause of the newest failure to copy.
    #[serde(default)]
    pub copy_reason: Option<String>,
    /// Ranks that are slower than the others, slowest first.
    #[serde(default)]
    pub stragglers: Vec<StragglerView>,
    /// Nodes that have not confirmed that ranks of its ended generations are gone.
    #[serde(default)]
    pub unconfirmed: Vec<UnconfirmedNode>,
    /// Thinned progress points, oldest first.
    pub progress: Vec<ProgressPoint>,
    /// State spans of its ranks and nodes, for a Gantt chart.
    pub spans: Vec<StateSpan>,
    /// Time of the submission.
    pub submitted_at: Timestamp,
    /// Time at which the job finished or was stopped.
    pub ended_at: Option<Timestamp>,
}

/// Node on which processes of an ended generation may still run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnconfirmedNode {
    /// Name of the node.
    pub node: NodeId,
    /// State of the node.
    pub state: NodeState,
    /// Time since which its confirmation is missing.
    pub since: Timestamp,
    /// Explanation for the operator.
    pub reason: String,
    /// Processes that its agent could not end.
    #[serde(default)]
    pub left: Vec<String>,
    /// True if the node has been away for longer than its lease, within which its agent ends the ranks.
    #[serde(default)]
    pub is_lease_over: bool,
}

/// Rank that has been slower than the others for several comparisons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StragglerView {
    /// Rank in the world.
    pub rank: Rank,
    /// Node of the rank.
    pub node: NodeId,
    /// Median step time of the rank, milliseconds.
    pub step_ms: f64,
    /// Median step time of all ranks, milliseconds.
    pub usual_ms: f64,
    /// Time since which the rank is reported.
    pub since: Timestamp,
}

/// View of a committed checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// Step of the checkpoint.
    pub step: Step,
    /// Generation that wrote it.
    pub generation: Generation,
    /// Ranks that wrote it.
    pub world_size: u32,
    /// Size of all shards, bytes.
    pub bytes: u64,
    /// Time of the commit.
    pub committed_at: Timestamp,
    /// Stall of each rank, milliseconds, by rank.
    pub stall_ms: Vec<(Rank, f64)>,
    /// Images of it that were copied to the memory of another node.
    #[serde(default)]
    pub copied: u32,
    /// Images of it covered by a parity in the memory of another node, counted once for every parity. As many lost
    /// images as the job has parities can be rebuilt when every image is covered by every parity.
    #[serde(default)]
    pub in_parity: u32,
    /// Time at which the mirror was complete.
    #[serde(default)]
    pub mirrored_at: Option<Timestamp>,
}

/// Step that a rank reported.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProgressPoint {
    /// Time of completion.
    pub at: Timestamp,
    /// Generation of the step.
    pub generation: Generation,
    /// Number of the step.
    pub step: Step,
    /// Loss of the step, if reported.
    pub loss: Option<f64>,
    /// Wall time of the step, milliseconds.
    pub step_ms: f64,
}

/// Period in one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateSpan {
    /// Node of the span.
    pub node: NodeId,
    /// Rank; absent for a span of the node itself.
    pub rank: Option<Rank>,
    /// Generation; present for a rank.
    pub generation: Option<Generation>,
    /// `starting`, `running`, `failed`, `ended`, `spare`, `cordoned`, `lost`, `healthy`.
    pub state: String,
    /// Start of the span.
    pub from: Timestamp,
    /// End of the span; absent for a span that lasts.
    pub to: Option<Timestamp>,
}
