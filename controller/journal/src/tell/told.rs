//! What a journal tells, as plain values.

use rankguard_checkpoint_schedule::rates::Scope;
use rankguard_model::{CaseId, ClassId, Entity, Evidence, Generation, JobId, NodeId, Severity, Step, Timestamp};

use crate::JournalError;

/// One thing that a journal tells, as it became known; jobs, attempts, nodes and failures come when all is known.
#[derive(Debug)]
pub enum Told {
    /// An entry that cannot be read: it is left out, and what follows from it is not known.
    Problem(JournalError),
    /// Evidence that arrived. Progress of ranks, and shards that were kept, are values only.
    Seen(Seen),
    /// A number that arrived in evidence.
    Value(Value),
    /// Something besides evidence.
    Happening(Happening),
    /// A stretch of a node's life.
    Interval(Interval),
    /// From a moment on so many nodes could be used.
    Usable {
        /// Since when.
        at: Timestamp,
        /// How many.
        nodes: u64,
    },
    /// A job.
    Job(Job),
    /// One generation of a job.
    Attempt(Attempt),
    /// A node that joined.
    Node(Node),
    /// A case in which work was lost or would have been.
    Failure(Failure),
}

/// Evidence with its moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The evidence; its own `at` is when it happened.
    pub evidence: Evidence,
    /// What it says, in one line.
    pub text: String,
}

/// A number.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// When.
    pub at: Timestamp,
    /// Whose.
    pub node: NodeId,
    /// Name of the metric.
    pub metric: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

/// Something besides evidence: a node that joined, a job that was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// When the controller took notice.
    pub at: Timestamp,
    /// The node, where it is about one.
    pub node: Option<NodeId>,
    /// What, in kebab-case.
    pub what: &'static str,
    /// In words.
    pub text: String,
}

/// A stretch of a node's life in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// The node.
    pub node: NodeId,
    /// From when.
    pub from: Timestamp,
    /// Until when.
    pub to: Timestamp,
    /// `healthy`, `cordoned` or `lost`.
    pub state: &'static str,
    /// It goes on when the journal ends.
    pub is_cut: bool,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub job: JobId,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When its first rank started, if one did.
    pub started: Option<Timestamp>,
    /// When it finished or was stopped.
    pub ended: Option<Timestamp>,
    /// `completed`, `failed`, `cancelled`, `running` or `pending`.
    pub state: &'static str,
    /// Why it was stopped.
    pub reason: Option<String>,
    /// Nodes of its newest generation.
    pub nodes: Option<u64>,
    /// Ranks of its newest generation.
    pub ranks: Option<u64>,
    /// The newest step that it reported.
    pub step: Option<Step>,
}

/// One generation of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its job.
    pub job: JobId,
    /// Its number.
    pub generation: Generation,
    /// When its plan was made.
    pub start: Timestamp,
    /// When it failed, was replaced or ended.
    pub end: Option<Timestamp>,
    /// `completed`, `failed`, `node_fail`, `out_of_memory`, `cancelled`, `running`, or `other` where it was replaced
    /// without a failure.
    pub state: &'static str,
    /// The kind of its plan (`start`, `shrink` ...).
    pub kind: &'static str,
    /// Its nodes, in group order.
    pub nodes: Vec<NodeId>,
    /// Its ranks.
    pub ranks: u32,
    /// The newest step that it reported.
    pub step: Option<Step>,
    /// The case that ended it.
    pub ended_by: Option<CaseId>,
}

/// A node that joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub node: NodeId,
    /// When it first joined.
    pub joined: Timestamp,
    /// What fails together with it; empty when not told.
    pub failure_domain: String,
    /// Ranks that it can run.
    pub slots: u32,
}

/// A case in which work was lost or would have been.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The case.
    pub case: CaseId,
    /// When its first evidence happened.
    pub at: Timestamp,
    /// When the blamed node could be used again; absent where it never left, or is still away.
    pub back: Option<Timestamp>,
    /// When the job made steps again, or completed.
    pub recovered: Option<Timestamp>,
    /// When the case was opened.
    pub detected: Timestamp,
    /// The job that suffered.
    pub job: Option<JobId>,
    /// Its generation.
    pub generation: Option<Generation>,
    /// Who is blamed.
    pub blamed: Entity,
    /// Its class.
    pub class: ClassId,
    /// Where the class sits.
    pub layer: String,
    /// How bad.
    pub severity: Severity,
    /// 0 to 1.
    pub confidence: f64,
    /// What it took with it.
    pub scope: Scope,
    /// Steps that had to be repeated.
    pub steps_lost: Option<u64>,
    /// It rests on facts that were made up by a simulation or an injection.
    pub is_synthetic: bool,
}

/// How a journal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// When its first event was taken notice of, the first evidence where it was replayed; nothing where there is none.
    pub first: Option<Timestamp>,
    /// When its last was.
    pub last: Option<Timestamp>,
    /// Entries, those that cannot be read among them.
    pub entries: u64,
    /// Nodes that ever joined.
    pub nodes: u64,
    /// Cases that were not concluded when it ended; they are no failures yet.
    pub open: u64,
    /// It holds recorded evidence that was replayed, and no cluster's life.
    pub replayed: bool,
    /// A controller had it open and goes on behind the last entry that was read.
    pub in_use: bool,
    /// Cases in which nothing failed (warnings, news).
    pub harmless: u64,
    /// Entries that the controller's retention had removed before the first one.
    pub removed: u64,
    /// When the last of them was stamped.
    pub removed_to: Option<Timestamp>,
}
