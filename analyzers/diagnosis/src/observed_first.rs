//! First end of a worker that torchrun observed, and what its other workers report because of it.
//!
//! torchrun logs `failed (exitcode: E) local_rank: L (pid: P)` about the first worker of its node that it saw end, sends
//! SIGTERM to the others ("closing signal"), and lists all of them afterwards. Those that lost the connection to the first may
//! report it before torchrun does. A signal that no program sends itself, such as SIGKILL, is no consequence of a lost connection.

use rankguard_faults::classes;
use rankguard_model::ProcessExit;

use crate::exit_class::{exit_class, signal_name};
use crate::sorted_set::SmallSortedSet;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Signature of the line in which torchrun names the worker that ended first.
const FAILED_WORKER: &str = "elastic-child-failed";
/// Score of an end that torchrun observed first.
const SCORE: f64 = 0.7;
/// Signals of faults and kills: SIGILL, SIGBUS, SIGFPE, SIGKILL and SIGSEGV. A library may abort because of a lost peer, and
/// launchers send SIGTERM.
const SIGNALS: [i32; 5] = [4, 7, 8, 9, 11];

/// End of a worker of torchrun by a signal.
struct ObservedEnd {
    index: usize,
    pid: u32,
    signal: i32,
    local_rank: String,
}

/// Prefers the end that torchrun observed first to the reports of the other workers about lost connections and closing signals.
/// Returns true if there is such an end.
pub(crate) fn prefer(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) -> bool {
    if !scene.has_local_causes() && !scene.is_of_logs() {
        return false;
    }
    let Some(end) = observed_end(scene) else { return false };
    if ranking.iter().any(|other| names_cause(scene, other, end.pid)) {
        return false;
    }
    let exit = ProcessExit::Signal(end.signal);
    let (class, _) = exit_class(exit);
    let candidates = ranking.iter_mut();
    let mut of_class = candidates.filter(|other| other.class.as_str() == class);
    let Some(candidate) = of_class.next() else { return false };
    let mut support = SmallSortedSet::default();
    support.extend(
        candidate
            .support
            .iter()
            .filter(|index| !is_of_other(scene, *index, end.pid)),
    );
    let first = support
        .iter()
        .find(|index| scene.signs[*index].evidence == scene.signs[end.index].evidence);
    candidate.first = first.unwrap_or(end.index);
    support.extend([candidate.first]);
    candidate.support = support;
    candidate.strength = CandidateStrength::Symptom;
    candidate.score = candidate.score.max(SCORE);
    let name = signal_name(exit).map_or_else(|| exit.to_string(), str::to_owned);
    candidate.notes.push(format!(
        "The launcher observed the end of process {} of local rank {} by {name} first, and ended the others.",
        end.pid, end.local_rank
    ));
    true
}

/// Returns true if a candidate names a cause: it is no lost peer, no end, and no signal that the launcher sent to another worker.
fn names_cause(scene: &FailureScene<'_>, candidate: &CauseCandidate, pid: u32) -> bool {
    if candidate.strength <= CandidateStrength::Outcome || reports_loss(candidate) {
        return false;
    }
    let is_closing = candidate.class.as_str() == classes::EXTERNAL_TERMINATION;
    candidate.support.iter().any(|index| {
        let sign = &scene.signs[index];
        sign.mark().is_none() || sign.is_root_mark() && !(is_closing && is_of_other(scene, index, pid))
    })
}

/// Returns true if a candidate is a report of a lost peer.
fn reports_loss(candidate: &CauseCandidate) -> bool {
    [
        classes::REMOTE_WORKER_LOST,
        classes::CONNECTION_RESET,
        classes::NCCL_REMOTE_ERROR,
    ]
    .contains(&candidate.class.as_str())
}

/// Returns the only end by such a signal that a launcher observed first; none if there are several, or if a worker ended by
/// itself.
fn observed_end(scene: &FailureScene<'_>) -> Option<ObservedEnd> {
    let mut ends = scene.marks().filter_map(|(index, sign)| {
        let status: i32 = sign
            .field("exitcode")
            .filter(|_| sign.is_signed(FAILED_WORKER))?
            .parse()
            .ok()?;
        Some((index, sign, status))
    });
    let (index, sign, status) = ends.next()?;
    let is_same = |other: &Signal| other.pid() == sign.pid() && other.node() == sign.node();
    let is_signal = SIGNALS.contains(&status.checked_neg()?);
    if !is_signal || ends.any(|(_, other, _)| !is_same(other)) {
        return None;
    }
    Some(ObservedEnd {
        index,
        pid: sign.pid()?,
        signal: -status,
        local_rank: sign.field("local_rank")?.to_owned(),
    })
}

/// Returns true if the line of a sign names another process.
fn is_of_other(scene: &FailureScene<'_>, index: usize, pid: u32) -> bool {
    let sign = &scene.signs[index];
    let mut of_line = scene.signs.iter().filter(|other| other.evidence == sign.evidence);
    let named = of_line.find_map(|other| other.pid()).or_else(|| pid_in(&sign.text));
    named.is_some_and(|named| named != pid)
}

/// Returns the process that a line of the launcher's table names: `(pid: 5533)`, `received by PID 5533`.
fn pid_in(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("(pid: ").or_else(|| text.split_once(" by PID "))?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}
