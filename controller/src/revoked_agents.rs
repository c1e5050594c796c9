//! Agents that are refused because their certificate is revoked.

use rankguard_identity::RefusalCounters;
use rankguard_model::StatusView;

/// Adds the serial number of a revoked certificate to the reason of each node of which the agent showed one.
pub(crate) fn show_revoked(view: &mut StatusView, refusals: &RefusalCounters) {
    for node in &mut view.nodes {
        let Some(serial) = refusals.revoked_agent(&node.node) else {
            continue;
        };
        let text = format!("its agent is refused: its certificate (serial number {serial}) is revoked");
        let reasons = node.reason.take().into_iter().chain([text]);
        node.reason = Some(reasons.collect::<Vec<_>>().join("; "));
    }
}
