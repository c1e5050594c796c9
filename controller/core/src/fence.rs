//! Fence requests: ranks that may still run on a node although their job has moved on (RG-3).

use std::time::Duration;

use rankguard_model::{CaseId, Generation, NodeState, Timestamp, UnconfirmedNode};
use serde::{Deserialize, Serialize};

use crate::counted_nouns::{count, counted};
use crate::{Node, Policy};

/// Ranks of one job on one node that must end before the node takes work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceRequest {
    /// Ranks of the job below this generation must end.
    pub generation: Generation,
    /// Time since which the confirmation is missing.
    pub since: Timestamp,
    /// True if the agent did not answer within [`Policy::fence_ms`].
    pub overdue: bool,
    /// Processes that the agent reported it could not end.
    pub left: Vec<String>,
    /// Case that records the number of ended processes.
    pub case: Option<CaseId>,
}

impl FenceRequest {
    /// Creates a request; its confirmation is missing from `since` on.
    pub fn new(generation: Generation, since: Timestamp, case: Option<CaseId>) -> Self {
        Self {
            generation,
            since,
            overdue: false,
            left: Vec::new(),
            case,
        }
    }

    /// Merges a later request for the same job and node; the higher generation applies.
    pub fn raise(&mut self, later: Self) {
        if later.generation > self.generation {
            let since = self.since;
            *self = Self { since, ..later };
        }
    }

    /// Returns the view for operators.
    pub(crate) fn view(&self, at: Timestamp, node: &Node, policy: &Policy) -> UnconfirmedNode {
        let state = node.state();
        let lease = node.info.lease_ms;
        // Killed ranks may take as long to die as a fence may take.
        let is_lease_over = node.lost_since.is_some_and(|since| {
            let limit = i64::try_from(lease.saturating_add(policy.fence_ms)).unwrap_or(i64::MAX);
            lease > 0 && at.millis_since(since) > limit
        });
        let reason = if let (NodeState::Lost, Some(lost)) = (state, node.lost_since) {
            let since = node.last_heard.or(node.session_ended).unwrap_or(lost);
            if is_lease_over {
                format!(
                    "away since {since}; its lease of {} s has ended since, and its ranks with it, which is not confirmed",
                    seconds(lease)
                )
            } else if lease > 0 && at.since(since) > Duration::from_millis(lease) {
                format!(
                    "away since {since}; its lease of {} s ended at {}, and its ranks end with it, which may take {} s more",
                    seconds(lease),
                    since.after(Duration::from_millis(lease)),
                    seconds(policy.fence_ms)
                )
            } else if lease == 0 {
                format!("away since {since}; its agent has no lease, so its ranks may run on")
            } else {
                format!(
                    "away since {since}; its ranks end within its lease of {} s",
                    seconds(lease)
                )
            }
        } else if !self.left.is_empty() {
            let left = count(counted(self.left.len()), "process");
            format!("its agent could not end {left} and is asked again")
        } else if self.overdue {
            format!(
                "its agent has not answered within {} s and is asked again",
                seconds(policy.fence_ms)
            )
        } else {
            "its agent is ending the ranks".to_owned()
        };
        UnconfirmedNode {
            node: node.info.node.clone(),
            state,
            since: self.since,
            reason,
            left: self.left.clone(),
            is_lease_over,
        }
    }
}

/// Converts milliseconds to seconds; the float prints without trailing zeros.
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1e3
}
