//! Engine exceptions of GPUs (XID 13, 31) that no process of the job is known to have caused. The driver names the
//! process; an exception of another process ends no rank, and no exception of a GPU causes a plain error of a program.

use rankguard_faults::classes;

use crate::program_errors::{is_plain_class, is_plain_error};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Factor on the score of such an exception beside a plain error.
const FOREIGN: f64 = 0.25;

/// Demotes engine exceptions without a link to a rank, if the program failed by a plain error.
pub(crate) fn demote_foreign(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_plain = |candidate: &CauseCandidate| {
        candidate.strength >= CandidateStrength::Cause && is_plain_class(candidate.class.as_str())
    };
    if !scene.has_fault_limits || !ranking.iter().any(is_plain) {
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

/// Returns true if a sign is an engine exception that does not concern a failure by a plain error.
pub(crate) fn is_beside_plain_error(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    scene.has_fault_limits && is_plain_error(&scene.signs[winner.first]) && is_foreign(scene, sign)
}

/// Returns true for an engine exception that names no process of the job that ended.
fn is_foreign(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let is_exception = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::GPU_ENGINE_EXCEPTION);
    let names_rank = sign.rank().is_some() || scene.exits().any(|(_, _, pid, _)| sign.pid() == Some(pid));
    is_exception && !names_rank
}
