//! Engine exceptions of GPUs (XID 13, 31) that no process of the job is known to have caused. The driver names the
//! process; an exception of another process ends no rank, and no exception of a GPU causes a plain error of a program.

use rankguard_faults::classes;
use rankguard_model::EvidenceSource;

use crate::own_exceptions::is_own_error;
use crate::program_errors::is_plain_class;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Field of agents for a process that is outside all jobs of its node.
const FOREIGN_PROCESS: &str = "foreign_process";

/// Factor on the score of such an exception beside a plain error.
const FOREIGN: f64 = 0.25;

/// Demotes engine exceptions without a link to a rank, if the program failed by an error of its own.
pub(crate) fn demote_foreign(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_own = |candidate: &CauseCandidate| {
        let is_plain = candidate.strength >= CandidateStrength::Cause && is_plain_class(candidate.class.as_str());
        let is_raised = candidate.strength >= CandidateStrength::Symptom && is_own_error(&scene.signs[candidate.first]);
        is_plain || is_raised
    };
    if !scene.has_fault_limits || !ranking.iter().any(is_own) {
        return;
    }
    for candidate in ranking {
        let mut support = candidate.support.iter().map(|index| &*scene.signs[index]);
        if support.all(|sign| is_foreign(scene, sign)) {
            candidate.strength = CandidateStrength::Outcome;
            candidate.score *= FOREIGN;
            let note = "No process of the job is known to have caused it, and the program failed by itself.";
            candidate.notes.push(note.to_owned());
        }
    }
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
    let is_beside = is_own_error(&scene.signs[winner.first]) && is_foreign(scene, sign);
    is_beside.then_some("It names no process of the job, and it explains no error of the program.")
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

/// Returns true for an engine exception that names no process of the job that ended.
pub(crate) fn is_foreign(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let names_rank = sign.rank().is_some() || scene.exits().any(|(_, _, pid, _)| sign.pid() == Some(pid));
    is_exception(sign) && !names_rank
}
