//! Reasons of a cordon with several faults: the node view names each, the worst first.
//!
//! A node that is out of use for one fault may report another. Its cordon remains, and so does the case for which it was
//! set; the later fault is added to the reasons. An error that the hardware contained comes after the faults that it did
//! not contain.

use rankguard_faults::classes;
use rankguard_model::{CaseId, NodeId};

use super::DecisionContext;
use crate::fleet::{CORDON_REASONS_MAX, ReasonPlace};

impl DecisionContext<'_> {
    /// Adds the fault of a case to the reasons of an existing cordon. A fault that is one of them is not repeated.
    pub(crate) fn add_fault_to_cordon(&mut self, id: CaseId, node: &NodeId, fault: &str) {
        let reason = format!("case {id}: {fault}{}", self.drill_marker(id));
        let cordon = self.state.fleet.get(node).and_then(|entry| entry.cordon.as_ref());
        let is_named = cordon.is_none_or(|cordon| cordon.reason.contains(&format!(": {fault}")));
        if is_named {
            return;
        }
        let place = if is_contained(fault) {
            ReasonPlace::Last
        } else {
            ReasonPlace::First
        };
        self.add_cordon_reason(node, &reason, place);
    }

    /// Adds a reason to those of an existing cordon, and reports the reasons for which there is no room.
    pub(super) fn add_cordon_reason(&mut self, node: &NodeId, reason: &str, place: ReasonPlace) {
        if self.state.reports_dropped_reasons() {
            for dropped in self.state.fleet.add_cordon_reason(node, reason, place) {
                self.announce(format!(
                    "the cordon of node {node} has {CORDON_REASONS_MAX} reasons, and this one is dropped: {dropped}"
                ));
            }
        } else if place == ReasonPlace::First {
            self.state.fleet.prepend_cordon_reason(node, reason);
        } else {
            self.state.fleet.append_cordon_reason(node, reason);
        }
    }
}

/// Returns true for `CLASS on ENTITY` with an error that the hardware contained.
fn is_contained(fault: &str) -> bool {
    let rest = fault.strip_prefix(classes::GPU_ECC_CONTAINED);
    rest.is_some_and(|rest| rest.starts_with(" on "))
}
