//! Direction of cause and effect between a machine and a program.

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, Role};

use crate::knowledge::ClassEntry;
use crate::own_exceptions::LOST_PEER_CLASSES;
use crate::{CauseCandidate, FailureScene, Signal};

/// Returns true if a machine reports a fault of its hardware or of a link that does not follow from the winner: no error of
/// a program or of a connection causes one. Whether the fault led to the error is another question.
pub(crate) fn is_of_machine_beside(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    let is_report = sign
        .mark()
        .is_some_and(|mark| matches!(mark.role, Role::Root | Role::Confirmation));
    let is_machine = scene.known(index).is_some_and(|known| known.is_machine());
    let is_kernel = matches!(sign.source, EvidenceSource::KernelLog | EvidenceSource::Gpu);
    let is_fault = is_kernel && is_report && is_machine && !follows_program(scene, sign);
    scene.has_fault_ends && is_fault && is_of_program(scene, winner)
}

/// Returns true for a winner that is an error of a program or of a connection.
fn is_of_program(scene: &FailureScene<'_>, winner: &CauseCandidate) -> bool {
    let known = ClassEntry::of(scene.catalogue, &winner.class);
    let is_connection = known.layer() == "network" && !known.is_machine();
    let class = winner.class.as_str();
    let is_lost = LOST_PEER_CLASSES.contains(&class) || class.starts_with("nccl-");
    known.is_program() || is_connection || is_lost
}

/// Returns true for a report that follows from the work of a program: the reset of a GPU after a refused access.
fn follows_program(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let is_refused = |earlier: &Signal| {
        let is_class = earlier
            .class()
            .is_some_and(|class| class.as_str() == classes::GPU_ENGINE_EXCEPTION);
        is_class && earlier.entity == sign.entity
    };
    scene.marks().any(|(_, earlier)| is_refused(earlier))
}
