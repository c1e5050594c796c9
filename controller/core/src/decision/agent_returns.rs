//! Returns of agents on the same boot of their node, which show that the node did not crash.

use rankguard_diagnosis::CallerFact;
use rankguard_model::{NodeId, NodeInfo, Timestamp};

use super::DecisionContext;

/// Boot of a node whose agent joins, relative to the boot before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BootChange {
    /// The node has run on.
    Same,
    /// The node was started again.
    New,
    /// One of the boots is not known, or the rules are older.
    Unknown,
}

impl DecisionContext<'_> {
    /// Returns true if a joining agent reports the boot that the node had before. Call it before the join is applied.
    pub(super) fn has_run_on(&self, info: &NodeInfo) -> bool {
        let before = self.state.fleet.get(&info.node);
        let has_same_boot = before.is_some_and(|node| node.info.boot_id == info.boot_id);
        self.state.has_cause_limits() && has_same_boot && !info.boot_id.is_empty()
    }

    /// Ends the silence of a node. If the node has run on, failures that were concluded from the silence are revised.
    pub(super) fn agent_returned(&mut self, node: &NodeId, has_run_on: bool) {
        let state = &mut *self.state;
        state.diagnosis.node_returned(node);
        if has_run_on {
            let changes = state.diagnosis.agent_returned(self.at, node, state.catalogue.get());
            self.take_changes(changes);
        }
    }
}

/// Returns the fact that an agent lost its ranks: with the node, unless the node has run on.
pub(super) fn loss_of_ranks(node: NodeId, since: Timestamp, boot: BootChange) -> CallerFact {
    match boot {
        BootChange::Same => CallerFact::AgentReturned { node, since },
        BootChange::New => CallerFact::NodeRebooted { node, since },
        BootChange::Unknown => CallerFact::NodeSilent { node, since },
    }
}
