//! Comparison of the two sides.
//!
//! | Kubernetes | Rankguard | action |
//! |---|---|---|
//! | open | reasons of its own | cordon in Kubernetes, within the limit |
//! | open | mirror only | uncordon in Rankguard |
//! | closed | no cordon | cordon in Rankguard |
//! | mirrored, other text | reasons of its own | rewrite the text |
//! | reopened | reasons of its own | cordon again, at most [`REPEATS_MAX`] times for the same text |
//! | mirrored or reopened | no reason of its own | remove the mark |
//! | any other pair | | none |
//!
//! A node that Rankguard lost has its cordon, if any, as before; silence is not a reason.

use rankguard_scheduler_nodes::NodeLimit;

use crate::mark::{CordonMark, REPEATS_MAX, cordon_reason, is_mirrored_cordon};
use crate::node_record::NodeUse;

/// Cordon of a node in Rankguard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerCordon {
    /// Reasons, newest first; empty without a cordon.
    pub reasons: Vec<String>,
    /// Failure class of the case that opened the cordon.
    pub class: Option<String>,
}

impl ControllerCordon {
    /// Returns the reasons that were given in Rankguard.
    pub fn own_reasons(&self) -> Vec<&str> {
        let own = self.reasons.iter().filter(|reason| !is_mirrored_cordon(reason));
        own.map(String::as_str).collect()
    }

    /// Returns the mark for the reasons that were given in Rankguard; `None` without one.
    pub fn mark(&self) -> Option<CordonMark> {
        let own = self.own_reasons();
        (!own.is_empty()).then(|| CordonMark::new(&own, self.class.as_deref()))
    }
}

/// Node as both sides describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedNode {
    /// Name in Kubernetes.
    pub kubernetes_name: String,
    /// Name in Rankguard.
    pub controller_name: String,
    /// Use in Kubernetes.
    pub kubernetes: NodeUse,
    /// Cordon in Rankguard.
    pub controller: ControllerCordon,
}

/// Change on one side. Each has the state that it rests on, so that a later state is not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncAction {
    /// Cordon and taint a node in Kubernetes.
    Cordon {
        /// Name in Kubernetes.
        node: String,
        /// Use of the node when it was read.
        before: NodeUse,
        /// Mark to write.
        mark: CordonMark,
    },
    /// Remove the mark of Rankguard in Kubernetes.
    Lift {
        /// Name in Kubernetes.
        node: String,
        /// Use of the node when it was read.
        before: NodeUse,
    },
    /// Cordon a node in Rankguard.
    MirrorCordon {
        /// Name in Kubernetes.
        node: String,
        /// Name in Rankguard.
        controller_name: String,
        /// Use of the node when it was read.
        before: NodeUse,
        /// Reason with the mark of a mirror.
        reason: String,
    },
    /// Lift a mirrored cordon in Rankguard.
    LiftMirror {
        /// Name in Kubernetes.
        node: String,
        /// Name in Rankguard.
        controller_name: String,
        /// Use of the node when it was read.
        before: NodeUse,
        /// All reasons of the cordon that is lifted.
        reasons: Vec<String>,
    },
}

impl SyncAction {
    /// Name of the rule, for counts.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Cordon { before, .. } => match before {
                NodeUse::Reopened(_) => "cordon-again",
                NodeUse::Mirrored(_) => "rewrite-mark",
                NodeUse::Open | NodeUse::Closed { .. } => "cordon",
            },
            Self::Lift { .. } => "lift",
            Self::MirrorCordon { .. } => "cordon-in-rankguard",
            Self::LiftMirror { .. } => "lift-in-rankguard",
        }
    }

    /// Name in Kubernetes and the use that the action rests on.
    pub fn basis(&self) -> (&str, &NodeUse) {
        match self {
            Self::Cordon { node, before, .. }
            | Self::Lift { node, before }
            | Self::MirrorCordon { node, before, .. }
            | Self::LiftMirror { node, before, .. } => (node, before),
        }
    }
}

/// Actions that make the two sides agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncPlan {
    /// Actions in order of the names in Kubernetes.
    pub actions: Vec<SyncAction>,
    /// Nodes that the limit leaves in use, by name in Kubernetes.
    pub held_back: Vec<String>,
    /// Nodes that another manager returned to use more often than the cordon is set again, by name in Kubernetes.
    pub overruled: Vec<String>,
    /// Largest number of mirrored cordons.
    pub limit: usize,
}

/// Compares the sides of every node.
pub fn reconcile(pairs: &[ComparedNode], limit: NodeLimit) -> SyncPlan {
    let mut plan = SyncPlan {
        limit: limit.nodes(pairs.len()),
        ..SyncPlan::default()
    };
    let is_retained = |pair: &&ComparedNode| {
        matches!(pair.kubernetes, NodeUse::Mirrored(_)) && !pair.controller.own_reasons().is_empty()
    };
    let mut cordoned = pairs.iter().filter(is_retained).count();
    for pair in pairs {
        if is_overruled(pair) {
            plan.overruled.push(pair.kubernetes_name.clone());
        }
        let Some(action) = missing_action(pair) else { continue };
        if let SyncAction::Cordon { node, before, .. } = &action
            && !matches!(before, NodeUse::Mirrored(_))
        {
            if cordoned >= plan.limit {
                plan.held_back.push(node.clone());
                continue;
            }
            cordoned += 1;
        }
        plan.actions.push(action);
    }
    plan
}

/// Returns true if another manager has its way although Rankguard has a reason.
fn is_overruled(pair: &ComparedNode) -> bool {
    let (NodeUse::Reopened(before), Some(mark)) = (&pair.kubernetes, pair.controller.mark()) else {
        return false;
    };
    before.repeats >= REPEATS_MAX && before.reason == mark.reason
}

fn missing_action(pair: &ComparedNode) -> Option<SyncAction> {
    let (node, before) = (pair.kubernetes_name.clone(), pair.kubernetes.clone());
    let controller_name = pair.controller_name.clone();
    let is_cordoned = !pair.controller.reasons.is_empty();
    match (&pair.kubernetes, pair.controller.mark()) {
        (NodeUse::Open, Some(mark)) => Some(SyncAction::Cordon { node, before, mark }),
        (NodeUse::Open, None) if is_cordoned => Some(SyncAction::LiftMirror {
            node,
            controller_name,
            before,
            reasons: pair.controller.reasons.clone(),
        }),
        (NodeUse::Closed { manager }, None) if !is_cordoned => Some(SyncAction::MirrorCordon {
            node,
            controller_name,
            reason: cordon_reason(manager.as_deref()),
            before,
        }),
        (NodeUse::Mirrored(old), Some(mark)) if !old.has_same_cause(&mark) => {
            Some(SyncAction::Cordon { node, before, mark })
        }
        // The class is that of the taint, which may be gone.
        (NodeUse::Reopened(old), Some(mark)) => {
            let is_same = old.reason == mark.reason;
            let repeats = if is_same { old.repeats + 1 } else { 0 };
            let mark = CordonMark { repeats, ..mark };
            (repeats <= REPEATS_MAX).then_some(SyncAction::Cordon { node, before, mark })
        }
        (NodeUse::Mirrored(_) | NodeUse::Reopened(_), None) => Some(SyncAction::Lift { node, before }),
        _ => None,
    }
}
