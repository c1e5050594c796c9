//! Warnings of failed attempts to connect, which libraries repeat until they succeed or give up.
//!
//! A rank that gives up ends with an error of its own. One that ended by a signal had passed the attempt, or was ended
//! during it: the warning does not explain its end, and it reports no lost peer.

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, ProcessExit, Rank};

use crate::exit_class::{is_abort, signal_name};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Classes of a connection that could not be made.
const CONNECTS: [&str; 4] = [
    classes::CONNECTION_REFUSED,
    classes::DNS_FAILURE,
    classes::NETWORK_UNREACHABLE,
    classes::RENDEZVOUS_FAILURE,
];
/// Factor on the score of a warning that does not explain the end of its rank.
const PASSED: f64 = 0.25;

/// Returns true if a rank warns of an attempt to connect that it repeats.
pub fn is_connect_attempt(sign: &Signal) -> bool {
    let is_connect = sign.class().is_some_and(|class| CONNECTS.contains(&class.as_str()));
    sign.source == EvidenceSource::JobLog && is_connect && is_warning(&sign.text)
}

/// Returns true for a line at the level of a warning: `[W1129 02:08:14.75 socket.cpp:752]` of c10, or `WARNING` of Python.
fn is_warning(text: &str) -> bool {
    let level = text.split_once("[W").map(|(_, rest)| rest);
    let is_of_c10 = level.is_some_and(|rest| rest.starts_with(|c: char| c == ' ' || c.is_ascii_digit()));
    is_of_c10 || text.contains("WARNING")
}

/// Demotes causes that rest on warnings of attempts alone: to symptoms, and below the end of their rank if a signal ended
/// it.
pub(crate) fn demote(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.distinguishes_ends() {
        return;
    }
    for candidate in ranking {
        let mut support = candidate.support.iter().map(|index| &*scene.signs[index]);
        if !support.all(is_connect_attempt) {
            continue;
        }
        candidate.strength = candidate.strength.min(CandidateStrength::Symptom);
        let support = candidate.support.iter().map(|index| &*scene.signs[index]);
        let ranks: Vec<Rank> = support.filter_map(|sign| sign.entity.rank()).collect();
        if has_passed(scene, &ranks) {
            candidate.strength = CandidateStrength::Outcome;
            candidate.score *= PASSED;
            let note = "It warns of an attempt to connect, which is repeated, and a signal ended the rank.";
            candidate.notes.push(note.to_owned());
        }
    }
}

/// Returns true if a signal ended one of the ranks that warned.
fn has_passed(scene: &FailureScene<'_>, ranks: &[Rank]) -> bool {
    let is_by_signal = |exit: ProcessExit| signal_name(exit).is_some() && !is_abort(exit);
    let mut ends = scene.exits();
    ends.any(|(_, end, _, exit)| is_by_signal(exit) && end.entity.rank().is_some_and(|rank| ranks.contains(&rank)))
}
