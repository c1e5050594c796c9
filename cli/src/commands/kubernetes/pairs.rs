//! Nodes that both sides know, and texts about their actions.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_kubernetes::{ComparedNode, NodeRecord, NodeUse, SyncAction, SyncPlan, WantedCondition};
use rankguard_scheduler_nodes::NameMap;

use super::super::scheduler_sides::{HeldBackNodes, shown};
use super::case_classes::BlamedNode;
use crate::display_text::count;

/// Nodes of both sides.
#[derive(Debug, Default)]
pub(super) struct PairedNodes {
    /// Pairs in order of the names in Kubernetes.
    pub(super) pairs: Vec<ComparedNode>,
    /// Node of Kubernetes and the condition that it should have, in the same order.
    pub(super) conditions: Vec<(NodeRecord, WantedCondition)>,
    /// Nodes of Kubernetes that may lose their pods once the cordon stands.
    pub(super) evictable: BTreeSet<String>,
    /// Nodes of one side only, with the side.
    pub(super) unpaired: BTreeSet<String>,
}

impl PairedNodes {
    /// Pairs the nodes of both sides: by the label where a node has one, else by name.
    pub(super) fn new(names: &NameMap, kubernetes: Vec<NodeRecord>, controller: &[BlamedNode<'_>]) -> Self {
        let by_name: BTreeMap<&str, &BlamedNode<'_>> =
            controller.iter().map(|node| (node.view.node.as_str(), node)).collect();
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for node in &kubernetes {
            let label = node.label_name.as_deref();
            if let Some((name, _)) = label.and_then(|label| by_name.get_key_value(label))
                // Two nodes with one label are a mistake; the first one has the name.
                && taken.insert(name)
            {
                known.insert(node.name.clone(), (*name).to_owned());
            }
        }
        let labelled = |node: &&NodeRecord| node.label_name.is_none();
        let rest = kubernetes.iter().filter(labelled).map(|node| node.name.as_str());
        let free = by_name.keys().copied().filter(|name| !taken.contains(name));
        let found = names.pair(rest, free);
        known.extend(found.known);
        let mut paired = Self::default();
        let only_kubernetes = kubernetes.iter().filter(|node| !known.contains_key(&node.name));
        paired
            .unpaired
            .extend(only_kubernetes.map(|node| format!("{} (Kubernetes)", node.name)));
        let only_rankguard = found.only_rankguard.iter();
        paired
            .unpaired
            .extend(only_rankguard.map(|name| format!("{name} (Rankguard)")));
        for node in kubernetes {
            let blamed = known.get(&node.name).and_then(|name| by_name.get(name.as_str()));
            let Some(blamed) = blamed else { continue };
            if blamed.may_evict {
                paired.evictable.insert(node.name.clone());
            }
            paired.pairs.push(ComparedNode {
                kubernetes_name: node.name.clone(),
                controller_name: blamed.view.node.to_string(),
                kubernetes: node.node_use(),
                controller: blamed.cordon.clone(),
            });
            let wanted = WantedCondition::of(blamed.view, &blamed.cordon, blamed.fault_class.as_deref());
            paired.conditions.push((node, wanted));
        }
        paired
    }
}

impl PairedNodes {
    /// Returns the nodes to be emptied now: the cordon of a case stands.
    pub(super) fn to_be_emptied(&self) -> BTreeSet<&str> {
        let is_due = |pair: &&ComparedNode| {
            matches!(pair.kubernetes, NodeUse::Mirrored(_)) && self.evictable.contains(&pair.kubernetes_name)
        };
        let due = self.pairs.iter().filter(is_due);
        due.map(|pair| pair.kubernetes_name.as_str()).collect()
    }
}

/// Returns the nodes beyond the limit.
pub(super) fn held_back(plan: &SyncPlan) -> HeldBackNodes<'_> {
    HeldBackNodes {
        change: "cordoned in Kubernetes",
        option: "--max-unavailable",
        limit: plan.limit,
        nodes: &plan.held_back,
    }
}

/// Returns the sentence about nodes that another manager returned to use again and again.
pub(super) fn overruled_text(nodes: &[String]) -> String {
    format!(
        "{} cordoned in Rankguard, but uncordoned in Kubernetes again and again, and left so: {}; \
         `rankguard node uncordon` ends the disagreement",
        count(nodes.len(), "node"),
        shown(nodes)
    )
}

/// Returns an action as a sentence.
pub(super) fn action_text(action: &SyncAction) -> String {
    match action {
        SyncAction::Cordon { node, mark, .. } => {
            format!("cordon {node} in Kubernetes: {} ({})", mark.reason, mark.class)
        }
        SyncAction::Lift { node, .. } => format!("lift the cordon of {node} in Kubernetes"),
        SyncAction::MirrorCordon {
            controller_name,
            reason,
            ..
        } => format!("cordon {controller_name} in Rankguard: {reason}"),
        SyncAction::LiftMirror {
            controller_name,
            reasons,
            ..
        } => format!(
            "lift the cordon of {controller_name} in Rankguard: {}",
            reasons.join("; ")
        ),
    }
}
