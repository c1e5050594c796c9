//! Records of the journal analysis.

use rankguard_checkpoint_schedule::rates::FailureExtent;
use rankguard_model::{CaseId, ClassId, Entity, Evidence, Generation, JobId, NodeId, Severity, Step, Timestamp};

use crate::JournalError;

/// Record of the journal analysis, in the order in which it became known; jobs, attempts, nodes and failures follow at
/// the end.
#[derive(Debug)]
pub enum JournalRecord {
    /// Unreadable entry: it is skipped, and its consequences are unknown.
    Problem(JournalError),
    /// Evidence that arrived. Progress of ranks and durable shards are recorded as values only.
    Evidence(EvidenceRecord),
    /// Number from evidence.
    Sample(MetricSample),
    /// Event other than evidence.
    Event(EventRecord),
    /// Span of a node.
    Interval(StateInterval),
    /// Number of usable nodes from a time on.
    Usable {
        at: Timestamp,
        nodes: u64,
    },
    Job(JobRecord),
    /// Attempt to run a job: one generation.
    Attempt(JobAttempt),
    /// Node that joined.
    Node(NodeRecord),
    /// Case in which work was lost or would have been.
    Failure(FailureRecord),
}

/// Evidence with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct EvidenceRecord {
    /// Evidence; its `at` is the time of the observation.
    pub evidence: Evidence,
    /// Text in one line.
    pub text: String,
}

/// Number from evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    pub at: Timestamp,
    /// Node of the evidence.
    pub node: NodeId,
    /// Metric name (`train.step_ms` ...).
    pub metric: String,
    pub value: f64,
    pub unit: String,
}

/// Event other than evidence, such as a join or a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Time at which the controller received it.
    pub at: Timestamp,
    /// Node of the event, if it concerns one.
    pub node: Option<NodeId>,
    /// Event type in kebab-case.
    pub what: &'static str,
    /// Description for display.
    pub text: String,
}

/// Period of a node in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateInterval {
    pub node: NodeId,
    /// Start of the period.
    pub from: Timestamp,
    /// End of the period.
    pub to: Timestamp,
    /// `healthy`, `cordoned` or `lost`.
    pub state: &'static str,
    /// True if the period continues at the end of the journal.
    pub is_cut: bool,
}

/// Job at the end of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    pub job: JobId,
    /// Time of the submission.
    pub submitted: Timestamp,
    /// Start of its first rank.
    pub started: Option<Timestamp>,
    /// Time at which it finished or was stopped.
    pub ended: Option<Timestamp>,
    /// `completed`, `failed`, `cancelled`, `running` or `pending`.
    pub state: &'static str,
    /// Reason for the stop.
    pub reason: Option<String>,
    /// Nodes of its newest generation.
    pub nodes: Option<u64>,
    /// Ranks of its newest generation.
    pub ranks: Option<u64>,
    /// Newest step that it reported.
    pub step: Option<Step>,
}

/// Attempt to run a job: one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobAttempt {
    pub job: JobId,
    pub generation: Generation,
    /// Time of its plan.
    pub start: Timestamp,
    /// Time at which it failed, was replaced or ended.
    pub end: Option<Timestamp>,
    /// `completed`, `failed`, `node_fail`, `out_of_memory`, `cancelled`, `running`, or `other` if it was replaced
    /// without a failure.
    pub state: &'static str,
    /// Kind of its plan (`start`, `shrink` ...).
    pub kind: &'static str,
    /// Nodes in group order.
    pub nodes: Vec<NodeId>,
    /// Number of ranks.
    pub ranks: u32,
    /// Newest step that it reported.
    pub step: Option<Step>,
    /// Case that ended it.
    pub ended_by: Option<CaseId>,
}

/// Node that joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    pub node: NodeId,
    /// Time of its first join.
    pub joined: Timestamp,
    /// Failure domain; empty if not configured.
    pub failure_domain: String,
    /// Ranks that it can run.
    pub slots: u32,
}

/// Case in which work was lost or would have been.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureRecord {
    pub case: CaseId,
    /// Time of its first evidence.
    pub at: Timestamp,
    /// Time at which the blamed node was usable again; absent if it never left, or is still away.
    pub back: Option<Timestamp>,
    /// Time at which the job made steps again, or completed.
    pub recovered: Option<Timestamp>,
    /// Time at which the case was opened.
    pub detected: Timestamp,
    /// Job that failed.
    pub job: Option<JobId>,
    /// Generation that failed.
    pub generation: Option<Generation>,
    pub blamed: Entity,
    pub class: ClassId,
    /// Layer of the class.
    pub layer: String,
    pub severity: Severity,
    /// Confidence of the verdict, 0 to 1.
    pub confidence: f64,
    /// Scope of the failure.
    pub scope: FailureExtent,
    /// Steps that had to be repeated.
    pub steps_lost: Option<u64>,
    /// True if it rests on evidence of a simulation or an injection.
    pub is_synthetic: bool,
}

/// Summary of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalSummary {
    /// Time of its first event, in a replay of the first evidence; absent if there is none.
    pub first: Option<Timestamp>,
    /// Time of its last event.
    pub last: Option<Timestamp>,
    /// Entries, including those that cannot be read.
    pub entries: u64,
    /// Nodes in the fleet at the end.
    pub nodes: u64,
    /// Cases that were not concluded at the end; they are no failures yet.
    pub open: u64,
    /// True if it holds replayed evidence and no live cluster's history.
    pub replayed: bool,
    /// True if a controller has it open, so that more entries may follow.
    pub in_use: bool,
    /// Cases in which nothing failed (warnings, information).
    pub harmless: u64,
    /// Entries that retention removed before the first one.
    pub removed: u64,
    /// Time of the last removed entry.
    pub removed_to: Option<Timestamp>,
}
