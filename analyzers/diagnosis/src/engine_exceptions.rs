//! Errors of GPUs that end one process, which the driver names, and that no process of the job is known to have caused:
//! engine exceptions (XID 13, 31), and errors of memory that the hardware confined (XID 94). Crashes of other programs are
//! treated in the same way. An error of another process ends no rank, and no exception of a GPU causes a plain error of a
//! program.

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, ProcessExit};

use crate::own_exceptions::is_own_error;
use crate::own_fault::is_other_node;
use crate::program_errors::is_plain_class;
use crate::signalled_ranks::complains;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Field of agents for a process that is outside all jobs of its node.
const FOREIGN_PROCESS: &str = "foreign_process";

/// Factor on the score of such an exception beside a plain error.
const FOREIGN: f64 = 0.25;

/// Demotes errors without a link to a rank, if the program failed by an error of its own, or a rank ended for itself.
pub(crate) fn demote_foreign(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_own = |candidate: &CauseCandidate| {
        let is_plain = candidate.strength >= CandidateStrength::Cause && is_plain_class(candidate.class.as_str());
        let is_raised = candidate.strength >= CandidateStrength::Symptom && is_own_error(&scene.signs[candidate.first]);
        is_plain || is_raised
    };
    if !scene.has_fault_limits {
        return;
    }
    let has_own = ranking.iter().any(is_own);
    for candidate in ranking {
        let is_other = |sign: &Signal| is_of_other_process(scene, sign);
        let support = candidate.support.iter().map(|index| &*scene.signs[index]);
        // Ends of ranks beside the error are no reports of it.
        let mut reports = support.filter(|sign| !scene.has_local_causes() || sign.exit().is_none());
        let is_of_other = is_other(&scene.signs[candidate.first]) && reports.all(is_other);
        if is_of_other && (has_own || has_end_of_its_own(scene, candidate)) {
            candidate.strength = CandidateStrength::Outcome;
            candidate.score *= FOREIGN;
            let note = if has_own {
                "No process of the job is known to have caused it, and the program failed by itself."
            } else {
                "No process of the job is known to have caused it, and a rank ended first that does not end this way for it."
            };
            candidate.notes.push(note.to_owned());
        }
    }
}

/// Returns true if a rank ended for itself, before any rank that the error may have ended: a rank of another node without a
/// report of a lost peer, or one that SIGKILL ended, which no driver sends for an error of a process.
fn has_end_of_its_own(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    let error = &scene.signs[candidate.first];
    if !scene.has_local_causes() || scene.silent().next().is_some() {
        return false;
    }
    let is_apart = |end: &Signal, exit: ProcessExit| is_apart(error, end, exit);
    let ends = || scene.exits().filter(|(_, end, ..)| !end.synthetic);
    let explained = ends().filter(|(_, end, _, exit)| !is_apart(end, *exit));
    let first_explained = explained.map(|(_, end, ..)| end.at).min();
    let mut apart = ends().filter(|(_, end, _, exit)| is_apart(end, *exit));
    apart.any(|(_, end, ..)| {
        let is_quiet = end.entity.rank().is_some_and(|rank| !complains(scene, rank));
        is_quiet && end.timed && first_explained.is_none_or(|first| end.at < first)
    })
}

/// Returns true for an end on another node, or by SIGKILL beside an error that names another process.
fn is_apart(error: &Signal, end: &Signal, exit: ProcessExit) -> bool {
    let is_killed = exit == ProcessExit::Signal(9) && error.pid().is_some();
    is_killed || is_other_node(end.node(), error.node())
}

/// Returns true for an error without a link to a rank, or a crash of another program on a node with agents, which report the
/// end of each rank.
fn is_of_other_process(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    is_foreign(scene, sign) || scene.has_local_causes() && is_foreign_crash(scene, sign)
}

/// Returns the reason for which an engine exception has nothing to do with a first cause; `None` if it may have.
pub(crate) fn reason_beside(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> Option<&'static str> {
    if !scene.has_fault_limits {
        return None;
    }
    if is_of_foreign_process(sign) {
        return Some("It names a process outside the job.");
    }
    if is_own_error(&scene.signs[winner.first]) && is_foreign_crash(scene, sign) {
        return Some("The kernel names a process that is no Python program and no process of the job.");
    }
    let first = &scene.signs[winner.first];
    let is_end_apart = first.exit().is_some_and(|(_, exit)| is_apart(sign, first, exit));
    let is_beside = is_own_error(first) || scene.has_local_causes() && is_end_apart;
    (is_beside && is_of_other_process(scene, sign))
        .then_some("It names no process of the job, and it explains no error of the program.")
}

/// Returns true for a crash in the kernel's log (`chrome[411]: segfault at 0 ...`) of a process that is no Python program
/// and no rank that ended.
fn is_foreign_crash(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let is_crash = sign
        .class()
        .is_some_and(|class| [classes::PROCESS_ABORTED, classes::SEGFAULT].contains(&class.as_str()));
    let name = sign
        .text
        .trim_start_matches("traps: ")
        .split('[')
        .next()
        .unwrap_or_default();
    let is_named = !name.is_empty() && !name.contains(' ') && name.len() < sign.text.len();
    let names_rank = sign.rank().is_some() || scene.exits().any(|(_, _, pid, _)| sign.pid() == Some(pid));
    sign.source == EvidenceSource::KernelLog && is_crash && is_named && !name.starts_with("python") && !names_rank
}

/// Returns true for an engine exception of a process that is outside all jobs, by the report of the agent.
pub(crate) fn is_of_foreign_process(sign: &Signal) -> bool {
    is_exception(sign) && sign.field(FOREIGN_PROCESS).is_some()
}

fn is_exception(sign: &Signal) -> bool {
    sign.class()
        .is_some_and(|class| class.as_str() == classes::GPU_ENGINE_EXCEPTION)
}

/// Returns true for an error that ends one process, and that names no process of the job that ended.
pub(crate) fn is_foreign(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let names_rank = sign.rank().is_some() || scene.exits().any(|(_, _, pid, _)| sign.pid() == Some(pid));
    let is_contained = || {
        let is_class = sign
            .class()
            .is_some_and(|class| class.as_str() == classes::GPU_ECC_CONTAINED);
        is_class && sign.pid().is_some() && scene.has_local_causes()
    };
    (is_exception(sign) || is_contained()) && !names_rank
}
