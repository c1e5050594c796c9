//! Wait of a job for the return of its nodes, because it costs less than a start without them.

use rankguard_model::{CaseId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

/// Nodes that are named in a text.
const NAMED_MAX: usize = 4;

/// Wait for lost nodes, up to a deadline at which the recovery is planned again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedWait {
    /// Case for which the job waits.
    pub(crate) case: CaseId,
    /// Deadline of the wait.
    pub(crate) until: Timestamp,
    /// Number of free nodes that end the wait.
    pub(crate) enough: u32,
    /// First lost nodes of the job, for the text.
    named: Vec<NodeId>,
    /// Number of lost nodes of the job.
    lost: usize,
}

impl PlannedWait {
    pub(crate) fn new(case: CaseId, until: Timestamp, enough: u32, lost: &[NodeId]) -> Self {
        Self {
            case,
            until,
            enough,
            named: lost.iter().take(NAMED_MAX).cloned().collect(),
            lost: lost.len(),
        }
    }

    /// Describes the wait for operators.
    pub(crate) fn describe(&self) -> String {
        let names: Vec<&str> = self.named.iter().map(NodeId::as_str).collect();
        let more = match self.lost - self.named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let them = if self.lost == 1 { "it" } else { "them" };
        format!(
            "waits until {} at most for the return of {}{more}: that is expected to cost less than a restart without {them}",
            self.until,
            names.join(", ")
        )
    }
}
