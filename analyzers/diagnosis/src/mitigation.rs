//! Mitigation of a cause.
//!
//! Each class has a general one. More specific evidence goes before it:
//!
//! - The driver of a GPU requests a recovery (XID 154), which summarizes what the other XIDs of the GPU need (NVIDIA's XID
//!   catalog).
//! - A row of memory could not be replaced. The failure outlasts a reset: the vendor replaces the board if its field
//!   diagnostic confirms it (NVIDIA GPU Memory Error Management, RMA policy for row remapping).
//! - The driver states that a contained error needs no reset (`RST: No`), and no row of memory waits for its replacement.
//! - SIGBUS ended a process: a mapped file or shared memory lacked a page, before the code of a library is suspected.
//! - A program ended itself with a text and without a traceback: there is no exception to read.
//! - A message names a state that its class in general does not ([`crate::advice`]).
//! - A signal stopped the process of a rank, which goes on with SIGCONT.
//! - A node lacks a file or a package that ranks on other nodes do not miss.
//! - A process was killed and no log names the sender: more memory is no answer until a log shows a lack of it.

use rankguard_faults::classes;
use rankguard_model::{EXIT_MESSAGE, Entity, RecommendedMitigation, Role, SharedValue};

use crate::advice;
use crate::exit_class::signal_name;
use crate::knowledge::ClassEntry;
use crate::missing_programs::node_that_lacks;
use crate::own_fault::is_same_device;
use crate::stopped_ranks::is_stopped;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Advice for a program that ended itself with a text and without a traceback.
const READ_MESSAGE: &str = "Read the message with which the program ended itself.";

/// Advice for a program that ended itself with an exit code, of which no log has a message.
const READ_OUTPUT: &str = "Read the end of the output of the process that ended: its launcher reports an exit code, and these logs have \
                           neither an exception nor another message of it.";

/// Advice for a contained error after which the driver needs no reset of the GPU.
const NO_RESET: &str =
    "Start the ranks of that process again now: the driver states that the GPU needs no reset (RST: No).";
/// Clearing condition of such an error.
const WORKS_ON: &str = "a process works on the GPU, and the driver reports no further error of it";
/// Advice for a process that SIGBUS ended.
const BUS_ERROR: &str = "Check the room in /dev/shm and in the file systems of mapped files on that node, and the kernel log for \
                         memory errors; then restart once.";

/// Advice for a rank that a signal stopped: signal(7), and Slurm's `scontrol suspend`.
const RESUME: &str = "Send SIGCONT to the process (`kill -CONT PID` on its node) if it is to go on, and find who stopped it: a person, a \
                      debugger, or a scheduler that suspends the job.";
/// Clearing condition of a stopped rank.
const GOES_ON: &str = "the process goes on (SIGCONT) and its rank makes a step";
/// Action and clearing condition for a node that lacks something.
const FIX_NODE: &str = "fix-environment";
const NODE_HAS_IT: &str = "the node has what the message names";

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
    let with_advice = |advice: &str| {
        SharedValue::from(RecommendedMitigation {
            advice: advice.to_owned(),
            ..(*general).clone()
        })
    };
    if is_suspected_kill(scene, cause) {
        return scene.catalogue.mitigation(&classes::KILLED_BY_SIGNAL.into());
    }
    if cause.class.as_str() == classes::UNCAUGHT_EXCEPTION && scene.signs[cause.first].is_signed(EXIT_MESSAGE) {
        return with_advice(READ_MESSAGE);
    }
    if scene.is_of_logs() && is_bare_exit(scene, cause) {
        return with_advice(READ_OUTPUT);
    }
    if is_bus_error(scene, cause) {
        return with_advice(BUS_ERROR);
    }
    if is_stopped(scene, cause) {
        return own_mitigation(&general.action, RESUME.to_owned());
    }
    if let Some(node) = node_that_lacks(scene, cause) {
        let advice = format!(
            "Mount or copy on node {node} what the message names: no rank on another node misses it. `rankguard node uncordon {node}`, \
             or a restart of its agent, then lets the job use the node again."
        );
        return own_mitigation(FIX_NODE, advice);
    }
    if let Some(mitigation) = advice::of_message(&scene.signs[cause.first], &general) {
        return mitigation.into();
    }
    if let Some(mitigation) = of_gpu(scene, cause) {
        return mitigation;
    }
    if needs_no_reset(scene, cause) {
        return with_advice(NO_RESET);
    }
    general
}

/// Returns true if only the exit code is known of a program that ended itself.
fn is_bare_exit(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
    let first = scene.signs[cause.first].class().map_or("", |class| class.as_str());
    cause.class.as_str() == classes::UNCAUGHT_EXCEPTION && first == classes::LAUNCHER_CHILD_FAILED
}

/// Returns the clearing condition of a cause: that of its class, unless the evidence shows that it does not apply.
pub(crate) fn clears_of(scene: &FailureScene<'_>, cause: &CauseCandidate, known: ClassEntry<'_>) -> String {
    if needs_no_reset(scene, cause) {
        return WORKS_ON.to_owned();
    }
    if is_stopped(scene, cause) {
        return GOES_ON.to_owned();
    }
    if node_that_lacks(scene, cause).is_some() {
        return NODE_HAS_IT.to_owned();
    }
    known.clears()
}

/// Returns a mitigation that no publication recommends.
fn own_mitigation(action: &str, advice: String) -> SharedValue<RecommendedMitigation> {
    let mitigation = RecommendedMitigation {
        action: action.to_owned(),
        advice,
        advice_on_return: String::new(),
        recommended_by: Vec::new(),
    };
    mitigation.into()
}

/// Signature of the report of a launcher that SIGBUS ended a process.
const BUS_SIGNATURE: &str = "exit-sigbus";

/// Returns true if SIGBUS ended a process.
pub(crate) fn is_bus_error(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
    let first = &scene.signs[cause.first];
    let is_exit = first
        .exit()
        .is_some_and(|(_, exit)| signal_name(exit) == Some("SIGBUS"));
    scene.has_fault_ends && cause.class.as_str() == classes::SEGFAULT && (is_exit || first.is_signed(BUS_SIGNATURE))
}

/// Returns true if the driver states of each contained error of the blamed GPU that it needs no reset, and reports no row of
/// memory that waits for one.
fn needs_no_reset(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
    if !scene.has_fault_ends || cause.class.as_str() != classes::GPU_ECC_CONTAINED {
        return false;
    }
    let is_stated = |sign: &Signal| {
        let is_no = |field: &str| sign.field(field).is_none_or(|value| value == "no");
        sign.field("reset") == Some("no") && is_no("drain_and_reset")
    };
    let of_gpu = |sign: &Signal| is_same_device(&sign.entity, &cause.blamed);
    let is_of_row = |sign: &Signal| {
        let class = sign.class().map_or("", |class| class.as_str());
        class.starts_with("gpu-row-remap") && sign.mark().is_some_and(|mark| mark.role != Role::Noise)
    };
    let mut marks = scene.marks().map(|(_, sign)| sign).filter(|sign| of_gpu(sign));
    let mut support = cause.support.iter().map(|index| &*scene.signs[index]);
    support.all(|sign| sign.class() != Some(&cause.class) || is_stated(sign)) && !marks.any(is_of_row)
}

/// Returns true for a kill by an unknown sender that counts as one of the kernel because that is the most frequent one.
pub(crate) fn is_suspected_kill(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
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
