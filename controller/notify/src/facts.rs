//! Facts about the cluster from which messages are made: plain data that the controller copies out of its state.

use std::time::Duration;

use rankguard_model::{CaseId, CaseState, ClassId, Generation, JobId, NodeId, Severity, Timestamp};

/// Time after its end for which a case remains in the facts. A receiver that cannot be reached for longer misses its end.
pub const ENDED_CASE_AGE: Duration = Duration::from_secs(86_400);

/// Facts about the cluster at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterFacts {
    /// Time of the facts on the controller's clock.
    pub at: Timestamp,
    /// Start of the controller.
    pub started_at: Timestamp,
    /// Cases that are open or ended within [`ENDED_CASE_AGE`], by number.
    pub cases: Vec<CaseFacts>,
    /// Jobs that are not over, by name.
    pub jobs: Vec<JobFacts>,
    /// Counts of nodes.
    pub nodes: NodeCounts,
    /// Reason why the controller records and decides nothing; absent while it works.
    pub degraded: Option<String>,
    /// Parts of the controller that fail while it records and decides, each with cause and consequence.
    pub impaired: Vec<String>,
    /// Newest scheduled report, if it has receivers.
    pub report: Option<ReportFacts>,
}

/// Scheduled report as a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFacts {
    /// End of its period.
    pub until: Timestamp,
    /// Sentence with the period.
    pub title: String,
    /// Text of the report, a line an entry.
    pub lines: Vec<String>,
    /// Command that shows more.
    pub command: String,
    /// Names of the receivers.
    pub receivers: Vec<String>,
}

/// Facts about a case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseFacts {
    pub id: CaseId,
    pub state: CaseState,
    pub opened_at: Timestamp,
    /// Time at which it was closed or recovered.
    pub ended_at: Option<Timestamp>,
    /// Class of the verdict.
    pub class: ClassId,
    pub severity: Severity,
    /// Confidence of the verdict, 0 to 1.
    pub confidence: f64,
    /// Blamed entity in words.
    pub blamed: String,
    /// Node of the blamed entity.
    pub node: Option<NodeId>,
    /// True if the node or one of its devices is blamed, not a rank on it.
    pub blames_node: bool,
    /// Root rank in words (`rank 3 failed first`), if evidence shows one.
    pub root_rank: Option<String>,
    pub job: Option<JobId>,
    pub generation: Option<Generation>,
    /// True if the job of the case was stopped by it.
    pub is_job_stopped: bool,
    /// Newest plan of the case in words.
    pub plan: Option<String>,
    /// Nodes that are cordoned for the case.
    pub cordoned: Vec<NodeId>,
    /// True if an operator has to make a decision.
    pub awaits_operator: bool,
    /// True if the case rests on an injection or a simulation.
    pub is_drill: bool,
}

impl CaseFacts {
    /// Returns true if the case is being handled, its fault is present, or it awaits an operator.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, CaseState::Recovered | CaseState::Closed) || self.awaits_operator
    }
}

/// Facts about a job that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    pub job: JobId,
    /// Times of its newest restarts after failures, oldest first.
    pub restarts: Vec<Timestamp>,
    /// Restarts after failures since its last progress.
    pub fruitless: u32,
    /// Number of such restarts at which the job is stopped instead.
    pub fruitless_max: u32,
    /// Nodes of its ranks; 0 if it waits for nodes.
    pub nodes: usize,
    /// Fewest nodes with which it makes progress.
    pub nodes_min: usize,
}

/// Counts of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Nodes that have joined and were not removed.
    pub known: usize,
    /// Nodes of which the agent has been silent beyond the limit.
    pub lost: usize,
    /// Nodes that are not lost and have no session, except those of which the agent was asked to end.
    pub without_session: usize,
    /// Nodes of which the agent has not joined since the controller started.
    pub unjoined: usize,
    /// Nodes on which ranks may be placed and no job has any.
    pub free: usize,
}

impl NodeCounts {
    /// Returns the number of nodes from which nothing is received.
    pub fn unheard(self) -> usize {
        self.lost + self.without_session + self.unjoined
    }
}
