//! Mitigation of a cause.
//!
//! Each class has a general one. More specific evidence goes before it:
//!
//! - The driver of a GPU requests a recovery (XID 154), which summarizes what the other XIDs of the GPU need (NVIDIA's XID
//!   catalog).
//! - A row of memory could not be replaced. The failure outlasts a reset: the vendor replaces the board if its field
//!   diagnostic confirms it (NVIDIA GPU Memory Error Management, RMA policy for row remapping).
//! - A program ended itself with a text and without a traceback: there is no exception to read.
//! - A process was killed and no log names the sender: more memory is no answer until a log shows a lack of it.

use rankguard_faults::classes;
use rankguard_model::{EXIT_MESSAGE, Entity, RecommendedMitigation, Role, SharedValue};

use crate::knowledge::ClassEntry;
use crate::own_fault::is_same_device;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Advice for a program that ended itself with a text and without a traceback.
const READ_MESSAGE: &str = "Read the message with which the program ended itself.";

/// Source of the rule that the requested recovery goes before a general one.
const CATALOG: &str = "nvidia-xid-catalog";

/// Requested recovery, the action and its instruction.
const RECOVERIES: [(&str, &str, &str); 7] = [
    (
        "bus-reset",
        "reset-gpu",
        "Restart the job on another node, then reset the PCIe bus of the GPU",
    ),
    (
        "drain-and-reset",
        "reset-gpu",
        "Restart the job on another node, end every process that uses peer access to the GPU, then reset it",
    ),
    (
        "drain-p2p",
        "replace-node",
        "Restart the job on another node, end every process that uses peer access to the GPU, then do what the driver asks \
         for next",
    ),
    (
        "gpu-reset",
        "reset-gpu",
        "Restart the job on another node, then reset the GPU",
    ),
    (
        "node-reboot",
        "reboot-node",
        "Restart the job on another node, then reboot this one",
    ),
    (
        "recover-imex-domain",
        "contact-platform",
        "Restart the job on other nodes, then recover the IMEX domain of this one",
    ),
    (
        "system-reboot",
        "reboot-node",
        "Restart the job on other nodes, then reboot the system",
    ),
];

/// Returns the mitigation of a cause: that of its class, unless the evidence names a more specific one.
pub(crate) fn of_cause(
    scene: &FailureScene<'_>,
    cause: &CauseCandidate,
    known: ClassEntry<'_>,
) -> SharedValue<RecommendedMitigation> {
    let general = known.mitigation(scene.catalogue);
    if !scene.has_fault_ends {
        return general;
    }
    if is_suspected_kill(scene, cause) {
        return scene.catalogue.mitigation(&classes::KILLED_BY_SIGNAL.into());
    }
    if cause.class.as_str() == classes::UNCAUGHT_EXCEPTION && scene.signs[cause.first].is_signed(EXIT_MESSAGE) {
        return SharedValue::from(RecommendedMitigation {
            advice: READ_MESSAGE.to_owned(),
            ..(*general).clone()
        });
    }
    of_gpu(scene, cause).unwrap_or(general)
}

/// Returns true for a kill by an unknown sender that counts as one of the kernel because that is the most frequent one.
fn is_suspected_kill(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
    let is_kill = cause.class.as_str() == classes::HOST_OOM_KILL && cause.strength == CandidateStrength::Outcome;
    let mark = scene.signs[cause.first].mark();
    is_kill && mark.is_some_and(|mark| mark.role == Role::Confirmation)
}

/// Returns the mitigation that reports of the blamed GPU name: the replacement of a board with a row of memory that cannot
/// be replaced, or the recovery that the driver requests.
fn of_gpu(scene: &FailureScene<'_>, cause: &CauseCandidate) -> Option<SharedValue<RecommendedMitigation>> {
    if !matches!(cause.blamed, Entity::Device { .. }) {
        return None;
    }
    let reports = || {
        let marks = scene.marks().map(|(_, sign)| sign);
        marks.filter(|sign| is_same_device(&sign.entity, &cause.blamed))
    };
    let is_beyond_repair = |sign: &Signal| {
        let class = sign.class().map(|class| class.as_str());
        class == Some(classes::GPU_ROW_REMAP_FAILURE) && sign.is_root_mark()
    };
    if reports().any(is_beyond_repair) {
        return Some(scene.catalogue.mitigation(&classes::GPU_ROW_REMAP_FAILURE.into()));
    }
    // The last request counts, and the driver withdraws one with a change to none.
    let requested = reports().filter_map(|sign| sign.field("recovery")).last();
    let (_, action, instruction) = RECOVERIES.iter().find(|(recovery, ..)| requested == Some(*recovery))?;
    let mitigation = RecommendedMitigation {
        action: (*action).to_owned(),
        advice: format!("{instruction}: the driver requests it for this GPU (XID 154), which goes before any table."),
        advice_on_return: String::new(),
        recommended_by: vec![CATALOG.to_owned()],
    };
    Some(mitigation.into())
}
