//! Faults of hardware beside the first cause that do not follow from it: each needs its own repair.

use rankguard_model::{Classification, Entity, Role};

use crate::knowledge::ClassEntry;
use crate::{CauseCandidate, FailureScene};

/// Parts of the names of classes that a lost device causes on its peers, because they share a link.
const LINKS: [&str; 4] = ["fabric", "link", "nic-", "nvswitch"];

/// Beginnings of the names of disks in the machine. Others may be reached over the network.
const LOCAL_DISKS: [&str; 6] = ["ata", "hd", "md", "mmcblk", "nvme", "sd"];

/// First cause, as far as it decides whether another fault follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstCause<'a> {
    pub(crate) blamed: &'a Entity,
    /// True if it is a hardware fault.
    pub(crate) is_machine: bool,
    /// True if it is a fault of the network.
    pub(crate) is_network: bool,
    /// True if it is a drill.
    pub(crate) synthetic: bool,
}

impl FirstCause<'_> {
    /// Returns true if a mark about an entity reports a fault that does not follow from this cause: a real fault beside
    /// a drill, a fault of hardware after a failure of software, the fault of another device or node, or a failure of a
    /// local disk beside one of the network.
    pub(crate) fn is_beside(&self, known: ClassEntry<'_>, mark: &Classification, entity: &Entity) -> bool {
        let class = mark.class.as_str();
        let is_fault = mark.role == Role::Root && known.is_outright_fault() && known.layer() == "hardware";
        let is_link = LINKS.iter().any(|part| class.contains(part));
        let is_device = |entity: &Entity| matches!(entity, Entity::Device { .. });
        let is_other_device = is_device(entity) && is_device(self.blamed) && entity != self.blamed;
        let is_other_node = match (entity.node(), self.blamed.node()) {
            (Some(node), Some(blamed)) => node != blamed && !node.as_str().is_empty() && !blamed.as_str().is_empty(),
            _ => false,
        };
        let disk = mark
            .fields
            .get("disk")
            .filter(|_| mark.role == Role::Root && known.layer() == "storage");
        if self.is_network && disk.is_some_and(|disk| LOCAL_DISKS.iter().any(|name| disk.starts_with(name))) {
            return true;
        }
        is_fault && !is_link && (self.synthetic || !self.is_machine || is_other_device || is_other_node)
    }
}

/// Returns true if the sign at an index is a fault of hardware that does not follow from the winner.
pub(crate) fn is_own_fault(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    let first = &scene.signs[winner.first];
    let class = ClassEntry::of(scene.catalogue, &winner.class);
    let cause = FirstCause {
        blamed: &winner.blamed,
        is_machine: class.is_machine(),
        is_network: class.layer() == "network",
        synthetic: first.synthetic,
    };
    let (Some(mark), Some(known)) = (sign.mark(), scene.known(index)) else {
        return false;
    };
    // A fault that was older than the failure did not end it.
    let is_before = sign.timed && first.timed && sign.at < first.at;
    scene.has_fault_limits && !sign.synthetic && !is_before && cause.is_beside(known, mark, &sign.entity)
}
