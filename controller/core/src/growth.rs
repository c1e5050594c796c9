//! Growth of a job onto more nodes, which waits for a checkpoint.

use rankguard_model::{Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Pending growth that waits for a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingGrowth {
    /// Called step; absent in a job that reports no steps.
    pub(crate) step: Option<Step>,
    /// Time until which only a commit of that step or a later one permits the growth.
    pub(crate) until: Timestamp,
}

impl PendingGrowth {
    /// Returns true if a commit of this step permits the growth.
    pub(crate) fn allows(&self, at: Timestamp, step: Step) -> bool {
        at >= self.until || self.step.is_none_or(|called| step >= called)
    }
}
