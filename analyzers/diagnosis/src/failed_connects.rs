//! Connections of a process that NCCL could not make before a peer closed its own.
//!
//! A process that cannot reach its peer gives up, and its peers see a closed connection. A report of a closed connection
//! below the failed connect of the same process is no earlier cause.

use rankguard_faults::classes;

use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Texts of `socketStartConnect` when the system refuses the call for good.
const CONNECT: &str = "Connect to ";
const FAILED: &str = " failed";

/// Demotes reports of lost peers below the failed connect of the same process.
pub(crate) fn blame_earlier(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.has_fault_ends {
        return;
    }
    let is_symptom = |candidate: &CauseCandidate| candidate.strength == CandidateStrength::Symptom;
    let is_connect = |candidate: &CauseCandidate| {
        candidate.class.as_str() == classes::NCCL_SYSTEM_ERROR
            && is_symptom(candidate)
            && is_failed_connect(&scene.signs[candidate.first])
    };
    let Some(connect) = ranking.iter().find(|candidate| is_connect(candidate)) else {
        return;
    };
    let connect = connect.first;
    let is_later = |candidate: &CauseCandidate| {
        let (one, other) = (&scene.signs[connect], &scene.signs[candidate.first]);
        candidate.class.as_str() == classes::REMOTE_WORKER_LOST
            && is_symptom(candidate)
            && one.evidence.node == other.evidence.node
            && one.evidence.seq < other.evidence.seq
            && process_of(one).is_some()
            && process_of(one) == process_of(other)
    };
    for candidate in ranking.iter_mut().filter(|candidate| is_later(candidate)) {
        candidate.strength = CandidateStrength::Outcome;
    }
}

fn is_failed_connect(sign: &Signal) -> bool {
    let after = sign.text.split_once(CONNECT).map(|(_, rest)| rest);
    sign.text.contains("NCCL WARN ") && after.is_some_and(|rest| rest.contains(FAILED))
}

/// Returns host and process of a line of NCCL: `node1:39964` of `node1:39964:40075 [0] ...`.
fn process_of(sign: &Signal) -> Option<&str> {
    let label = sign.text.split_whitespace().next()?;
    let (process, thread) = label.rsplit_once(':')?;
    let (_, number) = process.rsplit_once(':')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(thread) && is_number(number)).then_some(process)
}
