//! Ledger of the newest orders to each node: an answer counts only if it refers to one of them.

use std::collections::{BTreeMap, VecDeque};

use rankguard_model::{AgentOrder, Generation, JobId, NodeId, OrderId};
use serde::{Deserialize, Serialize};

/// Orders retained per node. A node answers within seconds or after an absence; after an absence of more than this many
/// orders its answer is recorded without effect.
const ORDERS_MAX: usize = 64;

/// Newest orders to every node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderLedger {
    nodes: BTreeMap<NodeId, VecDeque<SentOrder>>,
}

/// Order that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentOrder {
    pub(crate) id: OrderId,
    pub(crate) job: JobId,
    pub(crate) generation: Generation,
}

impl OrderLedger {
    /// Records an order to a node.
    pub(crate) fn send(&mut self, node: &NodeId, id: OrderId, order: &AgentOrder) {
        let (job, generation) = order.fence();
        let sent = self.nodes.entry(node.clone()).or_default();
        if sent.len() == ORDERS_MAX {
            sent.pop_front();
        }
        sent.push_back(SentOrder {
            id,
            job: job.clone(),
            generation,
        });
    }

    /// Returns the order with this number, if it was sent to the node and is retained.
    pub(crate) fn find(&self, node: &NodeId, id: OrderId) -> Option<&SentOrder> {
        self.nodes.get(node)?.iter().find(|sent| sent.id == id)
    }

    /// Returns true if a retained order to the node concerns this generation of the job.
    pub(crate) fn was_sent(&self, node: &NodeId, job: &JobId, generation: Generation) -> bool {
        let mut sent = self.nodes.get(node).into_iter().flatten();
        sent.any(|sent| sent.job == *job && sent.generation == generation)
    }

    /// Returns true if an order with this number may have been dropped from the ledger.
    pub(crate) fn may_have_forgotten(&self, node: &NodeId, id: OrderId) -> bool {
        let oldest = self
            .nodes
            .get(node)
            .filter(|sent| sent.len() == ORDERS_MAX)
            .and_then(|sent| sent.front());
        oldest.is_some_and(|oldest| id < oldest.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_orders_are_forgotten_and_foreign_ones_are_not_known() {
        let mut ledger = OrderLedger::default();
        let node = NodeId::from("n1");
        let order = AgentOrder::Stop {
            job: JobId::from("llm"),
            generation: Generation(1),
            grace_ms: 0,
            keeps_images: false,
        };
        ledger.send(&node, OrderId(2), &order);
        assert!(
            !ledger.may_have_forgotten(&node, OrderId(1)),
            "all orders are remembered"
        );
        for id in 10..74 {
            ledger.send(&node, OrderId(id), &order);
        }
        assert!(ledger.find(&node, OrderId(2)).is_none());
        assert!(ledger.may_have_forgotten(&node, OrderId(2)));
        assert!(ledger.find(&node, OrderId(73)).is_some());
        assert!(ledger.find(&NodeId::from("n2"), OrderId(73)).is_none());
        assert!(!ledger.may_have_forgotten(&node, OrderId(80)));
    }
}
