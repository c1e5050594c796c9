//! Recovery options of one failure with their costs, as the planner compared them.
//!
//! Costs are in node-milliseconds: one node without useful work for one millisecond. All options of a failure are
//! compared against the same number of nodes.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Comparison of the recovery options of one failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryChoice {
    /// Time of the comparison.
    pub at: Timestamp,
    /// Number of nodes of the job before the failure.
    pub nodes_before: u32,
    /// Number of nodes against which lost capacity is counted.
    pub nodes_full: u32,
    /// Predicted time from the plan to the first step, milliseconds; absent if the job is stopped.
    pub restart_ms: Option<u64>,
    /// Options in a fixed order; exactly one is chosen.
    pub options: Vec<RecoveryOption>,
    /// Inputs of the costs.
    pub inputs: Vec<CostInput>,
}

impl RecoveryChoice {
    /// Returns the option that was chosen.
    pub fn chosen(&self) -> Option<&RecoveryOption> {
        let mut options = self.options.iter();
        options.find(|option| option.outcome == OptionOutcome::Chosen)
    }
}

/// One way to recover from a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryOption {
    /// Kind of recovery.
    pub kind: RecoveryKind,
    /// Number of nodes with which the job continues; 0 if it does not.
    pub nodes: u32,
    /// Longest wait before the job continues, milliseconds; 0 without a wait.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_ms: u64,
    /// Result of the comparison.
    pub outcome: OptionOutcome,
    /// Reason of the outcome, in words.
    pub reason: String,
    /// Expected cost; absent for an option that is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<RecoveryCost>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Kind of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryKind {
    /// All nodes of the job restart.
    RestartInPlace,
    /// Spare nodes replace some nodes of the job.
    SwapSpare,
    /// The job continues with fewer nodes.
    Shrink,
    /// The job continues with more nodes.
    Grow,
    /// The job waits until its nodes return, up to a deadline.
    Wait,
    /// The job is stopped.
    Stop,
}

impl RecoveryKind {
    /// Returns the kind in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::RestartInPlace => "restart in place",
            Self::SwapSpare => "swap in a spare",
            Self::Shrink => "shrink",
            Self::Grow => "grow",
            Self::Wait => "wait for nodes",
            Self::Stop => "stop",
        }
    }
}

/// Result of the comparison for one option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptionOutcome {
    /// The option is carried out.
    Chosen,
    /// Another option is expected to cost less, or as much with fewer moves.
    Costlier,
    /// The option is not possible, or does not suffice.
    Unavailable,
}

/// Expected cost of an option by cause, node-milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryCost {
    /// Wait for nodes.
    pub wait: u64,
    /// Restart of the ranks.
    pub restart: u64,
    /// Work since the last committed checkpoint, which is repeated.
    pub repeated: u64,
    /// Capacity that is missing until the job has its full size again.
    pub capacity: u64,
    /// Later restart to grow to the full size.
    pub growth: u64,
    /// Further restart because a node with a known fault is used.
    pub recurrence: u64,
}

impl RecoveryCost {
    /// Returns the total cost.
    pub fn total(&self) -> u64 {
        let parts = [
            self.wait,
            self.restart,
            self.repeated,
            self.capacity,
            self.growth,
            self.recurrence,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// Input of the costs of recovery options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostInput {
    /// Name of the input.
    pub name: String,
    /// Value with its unit.
    pub value: String,
    /// True if the value is an assumption, false if it was measured or configured.
    pub assumed: bool,
    /// Origin of the value.
    pub basis: String,
}
