//! The checkpoint that is called before a job takes in more nodes.

use rankguard_model::{Step, Timestamp};
use serde::{Deserialize, Serialize};

/// A wish to grow that waits for a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// Step that was called; none in a job that reports no steps.
    pub(crate) step: Option<Step>,
    /// Until when only a commit of that step counts.
    pub(crate) until: Timestamp,
}

impl Growth {
    /// Whether a commit of this step lets the job grow now.
    pub(crate) fn allows(&self, at: Timestamp, step: Step) -> bool {
        at >= self.until || self.step.is_none_or(|called| step >= called)
    }
}
