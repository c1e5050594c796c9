//! Views of the controller's state as plain data, from which the command line makes tables, JSON and reports.

use serde::{Deserialize, Serialize};

use crate::{
    Case, CaseId, CheckpointCounts, Generation, JobId, JobSpec, NodeId, Rank, RankPlacement, RunId, RunStart, Step,
    Timestamp,
};

/// State of the whole cluster at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Time of the view.
    pub at: Timestamp,
    /// Nodes, sorted by name.
    pub nodes: Vec<NodeView>,
    /// State spans of the nodes in order of their start, the newest 4,096; for a Gantt chart.
    pub node_spans: Vec<StateSpan>,
    /// Jobs, sorted by name.
    pub jobs: Vec<JobView>,
    /// Cases that are neither closed nor recovered, and cases that await a decision of an operator.
    pub open_cases: Vec<CaseId>,
    /// Reason why the controller records nothing and decides nothing, with the remedy: the view is of before. Absent while
    /// it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// Parts of the controller that fail while it records and decides: audit log, tokens, reports, receivers of notifications.
    /// Each entry names the part, the cause, the consequence and the remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impaired: Vec<String>,
    /// Entries that the journal lacks because it was restored from a copy, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub journal_gaps: Vec<JournalGap>,
    /// Runs of torchrun with the back end `rankguard`, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub torchruns: Vec<TorchrunView>,
    /// Receivers of notifications, in the order of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ReceiverView>,
}

impl StatusView {
    /// Returns the runs of torchrun with workers on a node.
    pub fn torchruns_on(&self, node: &NodeId) -> Vec<&str> {
        let works = |member: &TorchrunMemberView| {
            let has_workers = matches!(
                member.state,
                TorchrunMemberState::Running | TorchrunMemberState::Stopping
            );
            has_workers && member.node == *node
        };
        let runs = self.torchruns.iter().filter(|run| run.members.iter().any(works));
        runs.map(|run| run.run.as_str()).collect()
    }
}

/// Entries that a journal lacks because it was restored from a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalGap {
    /// Time at which the gap was found.
    pub found_at: Timestamp,
    /// Node of the agent that knows a missing entry.
    pub node: NodeId,
    /// Extent of the gap, as far as it is known.
    pub what: String,
}

/// View of a receiver of notifications. Counts begin with the start of the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverView {
    /// Name in the configuration.
    pub name: String,
    /// Kind in the configuration.
    pub kind: String,
    /// Messages that it took.
    pub sent: u64,
    /// Attempts that failed; each message is sent again.
    pub failed: u64,
    /// Messages that it refused, which are dropped.
    pub refused: u64,
    /// Messages that the rate limit suppressed.
    pub suppressed: u64,
    /// Ends of incidents that were removed from memory before they could be delivered.
    pub missed: u64,
    /// Messages that are due and not delivered yet.
    pub waiting: u64,
    /// Cause of the newest failed attempt; absent after a delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Answer of the newest refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
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

/// View of a cordon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CordonView {
    /// Time of the cordon.
    pub since: Timestamp,
    /// Reasons, newest first.
    pub reasons: Vec<String>,
    /// Case that opened the cordon; absent for a cordon by an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseId>,
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
    /// Cordon of the node; absent without one. A lost node retains its cordon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonView>,
    /// Case that blames the node although it is in use: the cordon limit permitted no cordon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faulty_in_use: Option<CaseId>,
    /// Number of ranks that the node can run.
    pub slots: u32,
    /// Job that has ranks on the node.
    pub job: Option<JobId>,
    /// Address at which its agent serves other nodes (`host:port`); empty if it does not.
    #[serde(default)]
    pub address: String,
    /// Failure domain; empty if not configured.
    #[serde(default)]
    pub failure_domain: String,
    /// Number of pieces of evidence from this node that the controller refused, since the node first joined.
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
    /// All ranks run.
    Running,
    /// A failure occurred; evidence is being gathered or a plan carried out.
    Recovering,
    /// All ranks ended successfully.
    Finished,
    /// The job ended without completion: it was cancelled, or a failure was not recoverable.
    Stopped,
}

impl JobState {
    /// Returns the step at which a job in this state is: the newest one of its generation. A job that is over has the
    /// newest of all, and so has one of a controller that does not report the other.
    pub fn current_step(self, of_generation: Option<Step>, of_all: Option<Step>) -> Option<Step> {
        let has_newest = matches!(self, Self::Running | Self::Finished | Self::Stopped);
        of_generation.or(of_all.filter(|_| has_newest))
    }
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
    /// Checkpoints newer than `resumed_from` that this attempt did not start from, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
    /// Node and local rank of each rank.
    pub placements: Vec<RankPlacement>,
    /// Newest step that any generation reported.
    pub step: Option<Step>,
    /// Newest step that the current generation reported: after a restart it begins behind `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_step: Option<Step>,
    /// Committed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointView>,
    /// Newest step that all ranks have sealed and that is not committed yet.
    #[serde(default)]
    pub saving: Option<Step>,
    /// Counts of checkpoint attempts by outcome.
    #[serde(default)]
    pub checkpoint_counts: CheckpointCounts,
    /// Number of shards that a checkpoint lacks, since the submission: the save was skipped, replaced by a newer one or
    /// too late, its step precedes the checkpoint that the job started from, or the shard could not be stored.
    #[serde(default)]
    pub void_shards: u64,
    /// Step and cause of the newest missing shard.
    #[serde(default)]
    pub void_reason: Option<String>,
    /// Number of copies of images or of whole checkpoints that could not be made.
    #[serde(default)]
    pub copies_failed: u64,
    /// Step, destination and cause of the newest failed copy.
    #[serde(default)]
    pub copy_reason: Option<String>,
    /// Tensors of the newest checkpoint with other values on each rank, the first few names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_rank_tensors: Vec<String>,
    /// Condition for which the job waits before it leaves nodes that an operator drains; `None` if it has no rank on such a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    /// Ranks that are slower than the others, slowest first.
    #[serde(default)]
    pub stragglers: Vec<StragglerView>,
    /// Nodes that have not confirmed that ranks of its ended generations are gone.
    #[serde(default)]
    pub unconfirmed: Vec<UnconfirmedNode>,
    /// Progress points, oldest first, at most 4,096: at this number every second one is removed.
    pub progress: Vec<ProgressPoint>,
    /// State spans of its ranks in order of their start, the newest 4,096; for a Gantt chart.
    pub spans: Vec<StateSpan>,
    /// Time of the submission.
    pub submitted_at: Timestamp,
    /// Time at which the job finished or was stopped.
    pub ended_at: Option<Timestamp>,
}

impl JobView {
    /// Returns the step at which the job is, see [`JobState::current_step`].
    pub fn current_step(&self) -> Option<Step> {
        self.state.current_step(self.generation_step, self.step)
    }

    /// Returns true if a case of the job was opened in this attempt: an earlier job of its name may have left others.
    pub fn is_of_attempt(&self, case: &Case) -> bool {
        case.job.as_ref() == Some(&self.spec.id) && case.opened_at >= self.submitted_at
    }
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
    /// Reason why the confirmation is missing.
    pub reason: String,
    /// Processes that its agent could not end, one description each.
    #[serde(default)]
    pub left: Vec<String>,
    /// True if the node has been lost for longer than its lease and the fence limit together, so that its agent has
    /// ended the ranks. False if its agent has no lease.
    #[serde(default)]
    pub is_lease_over: bool,
}

/// Rank that is at least a tenth slower than the median of the ranks: in three comparisons in a row, 10 s apart, and
/// until three in a row find it as fast as the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StragglerView {
    /// Rank in the world.
    pub rank: Rank,
    /// Node of the rank.
    pub node: NodeId,
    /// Median step time of the rank, milliseconds.
    pub step_ms: f64,
    /// Median of the step times of all ranks, or of the others if the rank is compared with its own earlier pace, milliseconds.
    pub usual_ms: f64,
    /// Time of its first slow step.
    pub since: Timestamp,
    /// True if the newest comparison found it in the usual range; it remains listed until three in a row did.
    #[serde(default)]
    pub is_usual: bool,
}

/// View of a committed checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// Step of the checkpoint.
    pub step: Step,
    /// Generation that wrote it.
    pub generation: Generation,
    /// Number of ranks that wrote it.
    pub world_size: u32,
    /// Size of all shards, bytes.
    pub bytes: u64,
    /// Time of the commit.
    pub committed_at: Timestamp,
    /// Time for which the save blocked each rank, milliseconds.
    pub stall_ms: Vec<(Rank, f64)>,
    /// Number of its images that have a replica in the memory of another node.
    #[serde(default)]
    pub copied: u32,
    /// Number of its images that a parity in the memory of another node covers, counted once for every parity. If every
    /// parity covers every image, as many lost images can be rebuilt as the job has parities.
    #[serde(default)]
    pub in_parity: u32,
    /// Time at which its mirror was complete; absent before, and without a mirror.
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

/// Period in which a node or rank had one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateSpan {
    /// Node of the span.
    pub node: NodeId,
    /// Rank; absent for a span of the node itself.
    pub rank: Option<Rank>,
    /// Generation of the rank; absent for a span of the node itself.
    pub generation: Option<Generation>,
    /// State: `starting` or `running` for a rank; `healthy`, `cordoned`, `lost` or `fencing` for a node.
    pub state: String,
    /// Start of the span.
    pub from: Timestamp,
    /// End of the span; absent for the current state.
    pub to: Option<Timestamp>,
}

/// View of a run of torchrun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchrunView {
    /// Name of the run (`--rdzv-id`).
    pub run: String,
    /// Certificate name that opened it: that of an operator, or `launcher NAME`; absent on loopback without an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// State of the run.
    pub state: TorchrunState,
    /// Number of its newest round; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// Minimum number of nodes of a round.
    pub nodes_min: u32,
    /// Maximum number of nodes of a round.
    pub nodes_max: u32,
    /// Torchrun processes: those of the round by group rank, then the others by node.
    pub members: Vec<TorchrunMemberView>,
    /// Time of the last change.
    pub changed_at: Timestamp,
    /// Reason of the last change.
    pub reason: String,
    /// Time at which its last process left; absent while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// State of a run of torchrun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TorchrunState {
    /// The first round waits for nodes.
    Waiting,
    /// The newest round runs.
    Running,
    /// The newest round is over; the next one waits for its members.
    Restarting,
    /// No further round begins.
    Closed,
}

/// View of a torchrun process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchrunMemberView {
    /// Node of the process.
    pub node: NodeId,
    /// Group rank in the running round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// State of the process.
    pub state: TorchrunMemberState,
    /// Reason for its wait, or the reason for which its node is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of a torchrun process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TorchrunMemberState {
    /// Workers run in the current round.
    Running,
    /// Stops the workers of a round that is over.
    Stopping,
    /// Waits for the next round.
    Waiting,
    /// Waits for a place in the run.
    Spare,
    /// All workers finished.
    Finished,
    /// Without a connection at present.
    Disconnected,
}
