//! Comparison of the two sides.
//!
//! | Slurm | Rankguard | action |
//! |---|---|---|
//! | open | reasons of its own | drain in Slurm, within the limit |
//! | open, silent | mirror only | uncordon in Rankguard |
//! | closed | no cordon | cordon in Rankguard |
//! | mirror | no reason of its own | lift the drain in Slurm |
//! | any other pair | | none |
//!
//! A node that Rankguard lost has its cordon, if any, as before; silence is not a reason.

use rankguard_scheduler_nodes::NodeLimit;

use crate::reason::{cordon_reason, drain_reason, is_mirrored_cordon};
use crate::slurm_node::NodeAvailability;

/// Node of Rankguard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerNode {
    /// Reasons of its cordon, newest first; empty without a cordon.
    pub reasons: Vec<String>,
}

impl ControllerNode {
    /// Returns the reasons that were given in Rankguard.
    pub fn own_reasons(&self) -> Vec<&str> {
        let own = self.reasons.iter().filter(|reason| !is_mirrored_cordon(reason));
        own.map(String::as_str).collect()
    }
}

/// Node as both sides describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePair {
    /// Name in Slurm.
    pub slurm_name: String,
    /// Name in Rankguard.
    pub controller_name: String,
    /// Use in Slurm.
    pub slurm: NodeAvailability,
    /// Cordon in Rankguard.
    pub controller: ControllerNode,
}

/// Change on one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncAction {
    /// Drain a node in Slurm.
    Drain {
        /// Name in Slurm.
        node: String,
        /// Reason with the marks of a mirror.
        reason: String,
    },
    /// Lift a mirrored drain in Slurm.
    Undrain {
        /// Name in Slurm.
        node: String,
        /// Reason of the drain that is lifted.
        reason: String,
        /// True if the node remains down.
        is_down: bool,
    },
    /// Cordon a node in Rankguard.
    Cordon {
        /// Name in Rankguard.
        node: String,
        /// Reason with the mark of a mirror.
        reason: String,
    },
    /// Lift a mirrored cordon in Rankguard.
    Uncordon {
        /// Name in Rankguard.
        node: String,
        /// All reasons of the cordon that is lifted.
        reasons: Vec<String>,
    },
}

/// Actions that make the two sides agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncPlan {
    /// Actions in order of the names in Slurm.
    pub actions: Vec<SyncAction>,
    /// Nodes that the limit leaves in use, by name in Slurm.
    pub held_back: Vec<String>,
    /// Largest number of mirrored drains.
    pub limit: usize,
}

/// Compares the sides of every node.
pub fn reconcile(pairs: &[NodePair], limit: NodeLimit) -> SyncPlan {
    let limit = limit.nodes(pairs.len());
    let is_retained = |pair: &&NodePair| {
        matches!(pair.slurm, NodeAvailability::Mirrored { .. }) && !pair.controller.own_reasons().is_empty()
    };
    let mut drained = pairs.iter().filter(is_retained).count();
    let mut plan = SyncPlan {
        limit,
        ..SyncPlan::default()
    };
    for pair in pairs {
        let Some(action) = missing_action(pair) else { continue };
        if let SyncAction::Drain { node, .. } = &action {
            if drained >= limit {
                plan.held_back.push(node.clone());
                continue;
            }
            drained += 1;
        }
        plan.actions.push(action);
    }
    plan
}

fn missing_action(pair: &NodePair) -> Option<SyncAction> {
    let own = pair.controller.own_reasons();
    let is_cordoned = !pair.controller.reasons.is_empty();
    match &pair.slurm {
        NodeAvailability::Open if !own.is_empty() => Some(SyncAction::Drain {
            node: pair.slurm_name.clone(),
            reason: drain_reason(&own),
        }),
        NodeAvailability::Open | NodeAvailability::Silent if is_cordoned && own.is_empty() => {
            Some(SyncAction::Uncordon {
                node: pair.controller_name.clone(),
                reasons: pair.controller.reasons.clone(),
            })
        }
        NodeAvailability::Closed { reason, user } if !is_cordoned => Some(SyncAction::Cordon {
            node: pair.controller_name.clone(),
            reason: cordon_reason(reason, user.as_deref()),
        }),
        NodeAvailability::Mirrored { reason, is_down } if own.is_empty() => Some(SyncAction::Undrain {
            node: pair.slurm_name.clone(),
            reason: reason.clone(),
            is_down: *is_down,
        }),
        _ => None,
    }
}
