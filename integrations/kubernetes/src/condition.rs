//! Condition `RankguardHealthy` of a node.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rankguard_model::{NodeState, NodeView};
use rankguard_scheduler_nodes::plain_text;
use serde_json::{Value, json};

use crate::mark::CONDITION_TYPE;
use crate::objects::KubernetesCondition;
use crate::reconcile::ControllerCordon;

/// Longest message, characters.
const MESSAGE_MAX: usize = 1_000;

/// Status, reason and message that a node should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCondition {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// Failure class, or the state of the agent.
    pub reason: String,
    /// Sentence about the state.
    pub message: String,
}

impl WantedCondition {
    /// Returns the condition for a node of Rankguard. `fault_class` is the class of the case that blames the node, where
    /// one does.
    pub fn of(view: &NodeView, cordon: &ControllerCordon, fault_class: Option<&str>) -> Self {
        let own = cordon.own_reasons();
        if !own.is_empty() {
            let reason = fault_class.or(cordon.class.as_deref()).unwrap_or("operator-cordon");
            return Self::new("False", reason, &format!("Cordoned by Rankguard: {}.", own.join(", ")));
        }
        if let Some(case) = view.faulty_in_use {
            let why = view.reason.as_deref().unwrap_or("it is blamed");
            let text = format!("In use although case {case} blames it: {why}.");
            return Self::new("False", fault_class.unwrap_or("faulty-in-use"), &text);
        }
        match view.state {
            NodeState::Lost => Self::new("Unknown", "agent-silent", "The agent of Rankguard does not report."),
            NodeState::Fencing => Self::new(
                "Unknown",
                "fencing",
                "The agent has not confirmed that ranks of an ended generation are gone.",
            ),
            NodeState::Healthy | NodeState::Cordoned => Self::new("True", "healthy", "No case blames this node."),
        }
    }

    fn new(status: &'static str, reason: &str, message: &str) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: plain_text(message, MESSAGE_MAX),
        }
    }

    /// Returns true if the node has this condition already, apart from its times.
    pub fn is_same(&self, found: Option<&KubernetesCondition>) -> bool {
        found.is_some_and(|found| {
            found.status == self.status && found.reason == self.reason && found.message == self.message
        })
    }

    /// Returns the condition to write at `now`, the time of the API server. The time of the transition is retained unless
    /// the status changes, and never precedes the one before.
    pub fn at(&self, found: Option<&KubernetesCondition>, now: Timestamp) -> KubernetesCondition {
        let before = found.and_then(|found| found.last_transition_time.as_deref());
        let before: Option<Timestamp> = before.and_then(|text| text.parse().ok());
        let is_retained = found.is_some_and(|found| found.status == self.status);
        let transition = match before {
            Some(before) if is_retained => before,
            Some(before) => before.max(now),
            None => now,
        };
        KubernetesCondition {
            kind: CONDITION_TYPE.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            last_heartbeat_time: Some(now.to_string()),
            last_transition_time: Some(transition.to_string()),
        }
    }
}

/// Returns true if the heartbeat of a condition is older than `interval`, or in the future by more than that.
pub fn is_heartbeat_due(found: Option<&KubernetesCondition>, now: Timestamp, interval: Duration) -> bool {
    let heartbeat = found.and_then(|found| found.last_heartbeat_time.as_deref());
    let Some(heartbeat) = heartbeat.and_then(|text| text.parse::<Timestamp>().ok()) else {
        return true;
    };
    let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
    now.duration_since(heartbeat).abs() >= interval
}

/// Returns the server-side apply document of a condition; it has no other condition, so that no other is owned.
pub fn condition_document(node: &str, condition: &KubernetesCondition) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node },
        "status": { "conditions": [condition] },
    })
}
