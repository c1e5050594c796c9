//! Collectives that had waited for too long before the first cause to follow from it.
//!
//! The report of a timeout states how long the wait was, so the wait began that long before the report. A fault that comes
//! near the end of a wait did not begin it.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::Timestamp;

use crate::engine::FailureFamily;
use crate::independent::LocalFailure;
use crate::{CauseCandidate, FailureScene, Signal, stated_wait};

/// Minimum part of a wait that is explained by a fault within it: ranks come to a collective at different times, and clocks
/// differ.
const LEAST_LAG: Duration = Duration::from_secs(60);
/// Maximum of that part. A rank that saves or evaluates lets the others wait for minutes; if it fails then, it explains
/// their wait.
const GREATEST_LAG: Duration = Duration::from_secs(300);
/// Time after a report of a timeout for which messages of the same rank belong to it.
const SAME_REPORT: Duration = Duration::from_secs(60);

/// Returns true if the sign at an index reports a timeout with a wait that began too long before the winner.
pub(crate) fn waited_before(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    // A rank that waited in vain is aborted by its watchdog.
    let is_end = scene.family(index) == Some(FailureFamily::Process) && sign.entity.rank().is_some();
    let is_candidate =
        scene.is_of_logs() && (is_timeout(sign) || is_end) && index != winner.first && !winner.support.contains(index);
    if !is_candidate || LocalFailure::of_winner(scene, winner).is_none() {
        return false;
    }
    let Some(begun) = begun_at(scene, winner) else {
        return false;
    };
    match stated_wait(&sign.text).filter(|_| !is_end) {
        Some(wait) => began_before(sign, wait, begun),
        // Further messages of the rank about the same timeout, and its end.
        None => scene.signs.iter().any(|other| {
            let is_same = other.entity == sign.entity && other.evidence.node == sign.evidence.node && is_timeout(other);
            let is_near = other.at <= sign.at && sign.at <= other.at.after(SAME_REPORT);
            is_same && is_near && stated_wait(&other.text).is_some_and(|wait| began_before(other, wait, begun))
        }),
    }
}

/// Returns true if more of a wait had passed at the begin of a fault than the fault explains.
fn began_before(report: &Signal, wait: Duration, begun: Timestamp) -> bool {
    let explained = (wait / 2).clamp(LEAST_LAG, GREATEST_LAG);
    report.timed && wait > explained && begun > report.at.before(wait).after(explained)
}

fn is_timeout(sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    [
        classes::HCCL_TIMEOUT,
        classes::NCCL_TIMEOUT,
        classes::REMOTE_WORKER_LOST,
    ]
    .contains(&class)
}

/// Returns the earliest time of what belongs to the winner: its support, and other reports of its machine and rank. None
/// if one of them has no time that can be compared.
fn begun_at(scene: &FailureScene<'_>, winner: &CauseCandidate) -> Option<Timestamp> {
    let first = &scene.signs[winner.first];
    let node = winner.blamed.node().filter(|node| !node.as_str().is_empty());
    let belongs = |index: usize, sign: &Signal| {
        let is_there = node.is_some() && sign.node() == node;
        let is_of_rank = winner.root_rank.is_some() && sign.entity.rank() == winner.root_rank;
        let is_report = sign.is_root_mark() && !is_timeout(sign) && (is_there || is_of_rank);
        is_report || winner.support.contains(index)
    };
    let own = scene.each().filter(|(index, sign)| belongs(*index, sign));
    let times = own.filter(|(_, sign)| sign.timed).map(|(_, sign)| sign.at);
    times.min().filter(|_| first.timed)
}
