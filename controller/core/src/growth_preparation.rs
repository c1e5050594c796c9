//! Standby processes on nodes that a job is to take in: they import modules while the ranks of the job work on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_model::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::decision::PreflightResults;

/// Longest wait for the report of a node. The processes of a node import one after the other.
const NODE_WAIT: Duration = Duration::from_secs(120);
/// Longest wait for all nodes; those that join meanwhile are prepared as well.
const WAIT_MAX: Duration = Duration::from_secs(240);

/// Time for which the results of a preflight hold; a later start repeats it.
const PREFLIGHT_VALID: Duration = Duration::from_secs(300);

/// Preflight that was ordered before the plan was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct EarlyPreflight {
    asked_at: Timestamp,
    results: PreflightResults,
}

/// Nodes on which the processes of a job are prepared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GrowthPreparation {
    /// True for nodes that have reported.
    nodes: BTreeMap<NodeId, bool>,
    /// Preflight of all nodes of the coming generation, ordered while the job works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preflight: Option<EarlyPreflight>,
    begun_at: Timestamp,
    /// Time from which no report is awaited.
    until: Timestamp,
}

impl GrowthPreparation {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self {
            nodes: BTreeMap::new(),
            preflight: None,
            begun_at: at,
            until: at,
        }
    }

    pub(crate) fn until(&self) -> Timestamp {
        self.until
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.nodes.keys()
    }

    /// Adds a node that receives an order; returns false for a known one.
    pub(crate) fn add(&mut self, at: Timestamp, node: &NodeId) -> bool {
        if self.nodes.contains_key(node) {
            return false;
        }
        self.nodes.insert(node.clone(), false);
        self.until = at.after(NODE_WAIT).min(self.begun_at.after(WAIT_MAX));
        true
    }

    /// Records the report of a node; returns false if none was awaited.
    pub(crate) fn reported(&mut self, node: &NodeId) -> bool {
        self.nodes
            .get_mut(node)
            .is_some_and(|has_reported| !std::mem::replace(has_reported, true))
    }

    /// Removes a node that is lost, or of which the agent has started anew.
    pub(crate) fn remove(&mut self, node: &NodeId) {
        self.nodes.remove(node);
        self.preflight = None;
    }

    /// Records that these nodes are ordered to check themselves.
    pub(crate) fn ask_preflight(&mut self, at: Timestamp, nodes: BTreeSet<NodeId>) {
        let results = PreflightResults::await_nodes(nodes);
        self.preflight = Some(EarlyPreflight { asked_at: at, results });
    }

    /// Returns the preflight results that are being collected.
    pub(crate) fn preflight_mut(&mut self) -> Option<&mut PreflightResults> {
        self.preflight.as_mut().map(|preflight| &mut preflight.results)
    }

    /// Returns the preflight results if all nodes have answered recently.
    pub(crate) fn preflight(&self, at: Timestamp) -> Option<&PreflightResults> {
        let preflight = self.preflight.as_ref()?;
        let is_valid = at.since(preflight.asked_at) <= PREFLIGHT_VALID && preflight.results.waiting.is_empty();
        is_valid.then_some(&preflight.results)
    }

    /// Returns true if a node has not reported.
    pub(crate) fn has_unreported(&self) -> bool {
        self.nodes.values().any(|has_reported| !has_reported)
    }

    /// Returns true if the report of any node is awaited.
    pub(crate) fn awaits_any(&self, at: Timestamp) -> bool {
        self.nodes.keys().any(|node| self.awaits(at, node))
    }

    /// Goes on without the reports that are due; those that arrive later are ignored.
    pub(crate) fn end_wait(&mut self) {
        self.nodes.values_mut().for_each(|has_reported| *has_reported = true);
    }

    /// Returns true if the report of a node is awaited.
    pub(crate) fn awaits(&self, at: Timestamp, node: &NodeId) -> bool {
        at < self.until && self.nodes.get(node) == Some(&false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_new_node_extends_the_wait_up_to_a_limit() {
        let at = |seconds: u64| Timestamp(0).after(Duration::from_secs(seconds));
        let node = |name: &str| NodeId::from(name);
        let mut all = GrowthPreparation::new(at(0));
        assert!(all.add(at(0), &node("n1")) && !all.add(at(1), &node("n1")));
        assert_eq!(all.until(), at(120));
        assert!(all.awaits(at(119), &node("n1")) && !all.awaits(at(120), &node("n1")));
        assert!(all.add(at(100), &node("n2")));
        assert_eq!(all.until(), at(220));
        for minute in 2..9 {
            all.remove(&node("n3"));
            assert!(all.add(at(60 * minute), &node("n3")), "its agent has started anew");
        }
        assert_eq!(all.until(), at(240));
        assert!(all.reported(&node("n2")) && !all.reported(&node("n2")) && !all.reported(&node("n4")));
        assert!(!all.awaits(at(0), &node("n2")) && all.awaits(at(0), &node("n1")));
    }
}
