//! Signs before the first cause in an order that proves nothing.
//!
//! The clocks of two nodes differ, an agent notices the end of a process a moment after the kernel closed its connections,
//! and the lines of a log carry the time at which they were read. A lost connection, or the end of a survivor, that is a
//! moment earlier by such times follows from the first cause all the same.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{CaseFinding, EvidenceSource, ProcessExit, Role};

use crate::engine::FailureFamily;
use crate::exit_class::is_fault;
use crate::own_exceptions::{UNSPECIFIC, is_loss, is_own_error, is_own_exception};
use crate::signalled_ranks::{REPORT_LEAD, complains};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Returns true if a sign is earlier than another, by less than their order proves.
pub(crate) fn is_a_moment_before(sign: &Signal, first: &Signal) -> bool {
    let is_timed = sign.timed && first.timed;
    is_timed && sign.at < first.at && first.at.since(sign.at) <= REPORT_LEAD
}

/// Returns true if the sign at an index is a lost connection that follows from the winner although it is a moment
/// earlier. An error of the network may be reported by several ranks and follow from no end.
pub(crate) fn is_loss_before(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let (sign, first) = (&scene.signs[index], &scene.signs[winner.first]);
    let is_of_program = matches!(first.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
    let is_report = is_of_program && scene.family(winner.first) == Some(FailureFamily::Fabric);
    let is_other = sign.entity.rank().is_some() && sign.entity != first.entity;
    scene.distinguishes_ends()
        && is_other
        && !is_report
        && is_a_moment_before(sign, first)
        && is_loss(scene, index, sign)
        && sign.synthetic == first.synthetic
}

/// Returns true if the sign at an index is an error that a rank raised for a reason of its own, and the winner is such an
/// error of another rank: neither is the consequence of the other.
pub(crate) fn is_error_of_another(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let (sign, first) = (&scene.signs[index], &scene.signs[winner.first]);
    let rank = sign.entity.rank().filter(|rank| first.entity.rank() != Some(*rank));
    scene.distinguishes_ends()
        && first.entity.rank().is_some()
        && !winner.support.contains(index)
        && is_own(scene, winner.first)
        && is_own(scene, index)
        && rank.is_some_and(|rank| !complains(scene, rank))
}

/// Returns true if the sign at an index is an exception with a class of its own that no failed device, file system or peer
/// causes.
fn is_own(scene: &FailureScene<'_>, index: usize) -> bool {
    let sign = &scene.signs[index];
    let class = sign.class().map_or("", |class| class.as_str());
    let is_missing = class == classes::FILE_NOT_FOUND && is_own_exception(scene, index);
    is_own_error(sign) && !UNSPECIFIC.contains(&class) || is_missing
}

/// Returns true if a rank ended after an error of its own, and the winner is the error of another rank.
pub(crate) fn ended_of_own_error(scene: &FailureScene<'_>, winner: &CauseCandidate, end: &Signal) -> bool {
    let is_of_rank = |sign: &Signal| sign.entity == end.entity;
    let mut errors = scene.marks().filter(|(_, sign)| is_of_rank(sign));
    end.exit().is_some() && errors.any(|(index, _)| is_error_of_another(scene, winner, index))
}

/// Returns true if a rank ended by an error that it raised itself, and the winner is the same error of another rank: neither
/// end is the consequence of the other.
pub(crate) fn ended_of_same_error(scene: &FailureScene<'_>, winner: &CauseCandidate, end: &Signal) -> bool {
    let first = &scene.signs[winner.first];
    let is_of_itself = |exit: ProcessExit| matches!(exit, ProcessExit::Code(_)) || is_fault(exit);
    let is_raised = |index: usize| {
        let sign = &scene.signs[index];
        let is_same = sign.class() == first.class() && sign.is_root_mark() && sign.source == EvidenceSource::JobLog;
        is_same && sign.entity == end.entity && is_own_exception(scene, index)
    };
    scene.distinguishes_ends()
        && first.entity.rank().is_some_and(|rank| end.entity.rank() != Some(rank))
        && is_own_exception(scene, winner.first)
        && end.exit().is_some_and(|(_, exit)| is_of_itself(exit))
        && winner.support.iter().any(is_raised)
}

/// Demotes the errors of ranks below the first one that a rank raised for a reason of its own.
pub(crate) fn blame_first_error(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.distinguishes_ends() {
        return;
    }
    let is_error = |candidate: &CauseCandidate| {
        let first = &scene.signs[candidate.first];
        let is_of_rank = first.timed && first.entity.rank().is_some();
        is_of_rank && candidate.strength == CandidateStrength::Cause && is_own(scene, candidate.first)
    };
    let complains = |candidate: &&CauseCandidate| {
        let rank = scene.signs[candidate.first].entity.rank();
        rank.is_some_and(|rank| complains(scene, rank))
    };
    let mut errors: Vec<&CauseCandidate> = ranking.iter().filter(|candidate| is_error(candidate)).collect();
    errors.retain(|candidate| !complains(candidate));
    let earliest = errors.into_iter().map(|candidate| candidate.first);
    let Some(earliest) = earliest.min_by_key(|first| scene.signs[*first].at) else {
        return;
    };
    let first = &scene.signs[earliest];
    let is_later = |candidate: &CauseCandidate| {
        let error = &scene.signs[candidate.first];
        is_error(candidate) && error.entity != first.entity && error.at >= first.at
    };
    for candidate in ranking.iter_mut().filter(|candidate| is_later(candidate)) {
        candidate.strength = CandidateStrength::Symptom;
    }
}

/// Returns true if a finding is a consequence that is earlier than the first cause by less than their order proves.
pub(crate) fn is_consequence_before(finding: &CaseFinding, first: &CaseFinding) -> bool {
    let is_before = finding.at < first.at && first.at.since(finding.at) <= REPORT_LEAD;
    finding.role == Role::Cascade && is_before
}

/// Length of time between the silences of nodes that stopped together: agents report every second.
const SILENT_TOGETHER: Duration = Duration::from_secs(2);

/// Returns true if the agents of two nodes fell silent together.
pub(crate) fn are_silent_together(one: &Signal, other: &Signal) -> bool {
    let is_near = one.at <= other.at.after(SILENT_TOGETHER) && other.at <= one.at.after(SILENT_TOGETHER);
    one.what.is_silence() && other.what.is_silence() && is_near
}
