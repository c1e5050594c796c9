//! Name conflicts: agents that were refused because a live agent has the same node name.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{NodeId, NodeInfo, StatusView, Timestamp};
use tracing::warn;

/// Time for which a conflict is shown after the newest refusal. A refused agent retries more often.
const SHOWN: Duration = Duration::from_secs(10);

/// Newest refused agent of each node name. Bounded by the nodes: only a name that is in use is refused.
#[derive(Debug, Default)]
pub(crate) struct NameConflicts(BTreeMap<NodeId, NameConflict>);

#[derive(Debug)]
struct NameConflict {
    incarnation: String,
    host: String,
    refused_at: Timestamp,
}

impl NameConflicts {
    /// Records a refused agent; logged once per agent.
    pub(crate) fn report(&mut self, info: &NodeInfo, now: Timestamp) {
        let conflict = NameConflict {
            incarnation: info.incarnation.clone(),
            host: info.host.clone(),
            refused_at: now,
        };
        let before = self.0.insert(info.node.clone(), conflict);
        if before.is_none_or(|before| before.incarnation != info.incarnation) {
            warn!(
                node = %info.node,
                host = info.host,
                incarnation = info.incarnation,
                "refused an agent: another one of the same node name is alive"
            );
        }
    }

    /// Adds recent conflicts to the reasons of nodes in a status view.
    pub(crate) fn show(&self, view: &mut StatusView, now: Timestamp) {
        for node in &mut view.nodes {
            let conflict = self.0.get(&node.node);
            let Some(conflict) = conflict.filter(|conflict| now.since(conflict.refused_at) < SHOWN) else {
                continue;
            };
            let text = format!(
                "a second agent with this name on host {} is refused, last at {}",
                conflict.host, conflict.refused_at
            );
            let reasons = node.reason.take().into_iter().chain([text]);
            node.reason = Some(reasons.collect::<Vec<_>>().join("; "));
        }
    }
}
