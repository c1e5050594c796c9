//! Agents that are refused because their certificate is revoked.

use rankguard_api::revoked_text;
use rankguard_identity::RefusalCounters;
use rankguard_model::StatusView;

/// Adds the serial number of a revoked certificate to the reason of each node of which the agent showed one.
pub(crate) fn show_revoked(view: &mut StatusView, refusals: &RefusalCounters) {
    for node in &mut view.nodes {
        if let Some(serial) = refusals.revoked_agent(&node.node) {
            node.reason = Some(revoked_text(node.reason.take(), &serial));
        }
    }
}
