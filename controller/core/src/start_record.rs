//! Record of the starts of a job's ranks by node: decides whether a failed start is the fault of the node or of the job.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, NodeId};
use serde::{Deserialize, Serialize};

/// Nodes with a start that are recorded. For each node, two show whether another one started ranks.
const STARTED_MAX: usize = 2;

/// Starts of a job's ranks by node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StartRecord {
    /// First nodes on which ranks started, with the generation of the first start.
    started: BTreeMap<NodeId, Generation>,
    /// Nodes on which the newest start failed.
    failed: BTreeMap<NodeId, FailedStart>,
    /// Nodes that are not used for the job because its ranks do not start there.
    refused: BTreeSet<NodeId>,
    /// Nodes that were tried once more before the job would have been stopped.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    tried_again: BTreeSet<NodeId>,
    /// Nodes on which alone the ranks failed for something that the other nodes have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    lacking: BTreeSet<NodeId>,
}

/// Failed start of ranks on one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct FailedStart {
    generation: Generation,
    /// True once it is known that ranks start on another node.
    is_explained: bool,
}

/// Failed start on a node, and another node on which ranks started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartContrast {
    pub(crate) node: NodeId,
    pub(crate) generation: Generation,
    /// Node on which ranks started; the same node if they did in an earlier generation.
    pub(crate) on: NodeId,
}

impl StartRecord {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Records that a rank started on a node.
    pub(crate) fn start(&mut self, node: &NodeId, generation: Generation) {
        if self.started.len() < STARTED_MAX && !self.started.contains_key(node) {
            self.started.insert(node.clone(), generation);
        }
    }

    /// Records that ranks of a generation did not start on a node.
    pub(crate) fn fail(&mut self, node: &NodeId, generation: Generation) {
        let failed = FailedStart {
            generation,
            is_explained: false,
        };
        self.failed.insert(node.clone(), failed);
    }

    /// Returns the failures for which it is now known that ranks start elsewhere, each once.
    pub(crate) fn take_contrasts(&mut self) -> Vec<StartContrast> {
        let mut contrasts = Vec::new();
        for (node, failed) in self.failed.iter_mut().filter(|(_, failed)| !failed.is_explained) {
            let works = |(other, since): &(&NodeId, &Generation)| *other != node || **since < failed.generation;
            let Some((on, _)) = self.started.iter().find(works) else {
                continue;
            };
            failed.is_explained = true;
            contrasts.push(StartContrast {
                node: node.clone(),
                generation: failed.generation,
                on: on.clone(),
            });
        }
        contrasts
    }

    /// Returns the nodes on which the start failed, of any generation.
    pub(crate) fn failed(&self) -> BTreeSet<NodeId> {
        self.failed.keys().cloned().collect()
    }

    /// Returns the nodes on which the start of a generation failed.
    pub(crate) fn failed_in(&self, generation: Generation) -> BTreeSet<NodeId> {
        let own = self.failed.iter().filter(|(_, failed)| failed.generation == generation);
        own.map(|(node, _)| node.clone()).collect()
    }

    /// Records that nodes are not used for the job.
    pub(crate) fn refuse(&mut self, nodes: &BTreeSet<NodeId>) {
        self.refused.extend(nodes.iter().cloned());
    }

    /// Returns the nodes that are not used for the job.
    pub(crate) fn refused(&self) -> &BTreeSet<NodeId> {
        &self.refused
    }

    /// Returns the nodes that are not used for the job and were not tried once more, and permits its start there.
    pub(crate) fn try_again(&mut self) -> BTreeSet<NodeId> {
        let unused = self.refused.union(&self.lacking);
        let untried: BTreeSet<NodeId> = unused
            .filter(|node| !self.tried_again.contains(*node))
            .cloned()
            .collect();
        for node in &untried {
            self.failed.remove(node);
            self.refused.remove(node);
            self.lacking.remove(node);
            self.tried_again.insert(node.clone());
        }
        untried
    }

    /// Records that something lacks on a node that its ranks need.
    pub(crate) fn lacks(&mut self, node: &NodeId) {
        self.lacking.insert(node.clone());
    }

    /// Returns the nodes on which something lacks that ranks of the job need.
    pub(crate) fn lacking(&self) -> &BTreeSet<NodeId> {
        &self.lacking
    }

    /// Forgets the failures of a node, after a restart of its agent or an uncordon.
    pub(crate) fn forget(&mut self, node: &NodeId) {
        self.failed.remove(node);
        self.refused.remove(node);
        self.tried_again.remove(node);
        self.lacking.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::from(name)
    }

    #[test]
    fn a_failed_start_is_compared_with_other_nodes_and_with_earlier_generations() {
        let mut record = StartRecord::default();
        record.fail(&node("n4"), Generation(1));
        assert_eq!(record.take_contrasts(), [], "nothing started");
        record.start(&node("n4"), Generation(1));
        assert_eq!(record.take_contrasts(), [], "another rank of the same start");
        record.start(&node("n1"), Generation(2));
        let found = record.take_contrasts();
        assert_eq!((&found[0].node, &found[0].on), (&node("n4"), &node("n1")));
        assert_eq!(record.take_contrasts(), [], "once");
        record.start(&node("n2"), Generation(2));
        assert_eq!(record.started.len(), STARTED_MAX);
        // A node that started ranks before.
        let mut record = StartRecord::default();
        record.start(&node("n1"), Generation(1));
        record.fail(&node("n1"), Generation(2));
        assert_eq!(record.take_contrasts()[0].on, node("n1"));
        record.forget(&node("n1"));
        assert!(record.failed().is_empty());
    }
}
