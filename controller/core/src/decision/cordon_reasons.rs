//! Reasons of a cordon with several faults: the node view names each, the worst first.
//!
//! A node that is out of use for one fault may report another. Its cordon remains, and so does the case for which it was
//! set; the later fault is added to the reasons. An error that the hardware contained comes after the faults that it did
//! not contain.

use rankguard_faults::classes;
use rankguard_model::{CaseId, NodeId};

use super::DecisionContext;

impl DecisionContext<'_> {
    /// Adds the fault of a case to the reasons of an existing cordon. A fault that is one of them is not repeated.
    pub(crate) fn add_fault_to_cordon(&mut self, id: CaseId, node: &NodeId, fault: &str) {
        let reason = format!("case {id}: {fault}{}", self.drill_marker(id));
        let cordon = self.state.fleet.get(node).and_then(|entry| entry.cordon.as_ref());
        let is_named = cordon.is_none_or(|cordon| cordon.reason.contains(&format!(": {fault}")));
        if is_named {
            return;
        }
        if is_contained(fault) {
            self.state.fleet.append_cordon_reason(node, &reason);
        } else {
            self.state.fleet.add_cordon_reason(node, &reason);
        }
    }
}

/// Returns true for `CLASS on ENTITY` with an error that the hardware contained.
fn is_contained(fault: &str) -> bool {
    let rest = fault.strip_prefix(classes::GPU_ECC_CONTAINED);
    rest.is_some_and(|rest| rest.starts_with(" on "))
}
