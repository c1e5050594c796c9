//! Ranks that a signal ended while their peers report a lost connection.
//!
//! A kernel closes the sockets of a killed process before its parent receives the exit, so the report of a peer may
//! carry the earlier time. The report is still a consequence: the killed rank did not complain of a peer itself.

use std::time::Duration;

use rankguard_model::{ProcessExit, Rank};

use crate::connect_attempts::is_connect_attempt;
use crate::engine::FailureFamily;
use crate::exit_class::{is_fault, is_kill, signal_name};
use crate::{FailureScene, Signal};

/// Maximum lead of a peer's report over the end of the killed rank: scheduling delay on a busy node, and clock skew.
pub(crate) const REPORT_LEAD: Duration = Duration::from_secs(2);

/// Returns true for SIGKILL and the signals of a process that failed by itself. Launchers send SIGTERM to survivors, and
/// a lost peer causes SIGPIPE.
fn strikes(exit: ProcessExit) -> bool {
    is_kill(exit) || is_fault(exit)
}

/// Returns the first rank that a signal ended and that reports no lost peer, unless another rank ended clearly before
/// it.
pub(crate) fn struck_rank<'s>(scene: &'s FailureScene<'_>) -> Option<(usize, &'s Signal, u32, ProcessExit)> {
    let first_end = scene
        .exits()
        .filter(|(_, sign, ..)| sign.timed)
        .map(|(_, sign, ..)| sign.at)
        .min()?;
    scene
        .exits()
        .filter(|(_, sign, _, exit)| sign.timed && strikes(*exit))
        .filter(|(_, sign, ..)| sign.at <= first_end.after(REPORT_LEAD))
        .filter(|(_, sign, ..)| sign.entity.rank().is_some_and(|rank| !complains(scene, rank)))
        .min_by_key(|(_, sign, ..)| sign.at)
}

/// Difference of the clocks of two nodes up to which the order of two ends proves nothing.
const CLOCKS: Duration = Duration::from_secs(2);
/// Difference of two ends on one node that may come from the order in which they were noticed.
const SAME_MOMENT: Duration = Duration::from_millis(50);

/// Difference of the ends of ranks that ended themselves with one code, or that crashed on one node, up to which none
/// noticed the end of another.
const NO_REACTION: Duration = Duration::from_millis(250);

/// Returns the ends of other ranks by the signal or with the exit code of the rank of the sign at `first`, if the order of
/// the ends proves nothing: the clocks of their nodes may differ by as much. A signal from outside ended none of them
/// because of another. Ranks that report a lost peer are survivors.
pub(crate) fn equal_ends(scene: &FailureScene<'_>, first: usize) -> Vec<usize> {
    let sign = &scene.signs[first];
    let Some((_, exit)) = sign.exit().filter(|(_, exit)| !exit.is_success() && sign.timed) else {
        return Vec::new();
    };
    if !scene.distinguishes_ends() {
        return Vec::new();
    }
    let is_code = signal_name(exit).is_none();
    let limit = |other: &Signal| {
        if is_code && other.node() == sign.node() {
            SAME_MOMENT
        } else if is_code || is_fault(exit) && other.node() == sign.node() {
            NO_REACTION
        } else {
            CLOCKS
        }
    };
    // Exceptions end with code 1, also that for a lost peer. Another code is the choice of the program.
    let is_chosen = is_code && matches!(exit, ProcessExit::Code(code) if code > 1);
    let least = if is_chosen { NO_REACTION } else { Duration::ZERO };
    let is_equal = |other: &Signal| {
        let limit = limit(other).max(least);
        let is_near = other.at <= sign.at.after(limit) && sign.at <= other.at.after(limit);
        let is_survivor = other.entity.rank().is_none_or(|rank| complains(scene, rank));
        other.timed && is_near && other.synthetic == sign.synthetic && !is_survivor
    };
    let ends = scene.exits().filter(|(index, ..)| *index != first);
    let same = ends.filter(|(.., other)| other.shell_code() == exit.shell_code());
    same.filter(|(_, other, ..)| is_equal(other))
        .map(|(index, ..)| index)
        .collect()
}

/// Returns true if the order of two ends is known: one kernel reported both, further apart than they are noticed.
pub(crate) fn has_known_order(one: &Signal, other: &Signal) -> bool {
    let distance = Duration::from_millis(one.at.millis_since(other.at).unsigned_abs());
    one.timed && other.timed && one.node() == other.node() && distance > SAME_MOMENT
}

/// Returns true if a peer's report of a lost connection can be the consequence of a rank's end.
pub(crate) fn explains_complaint(end: &Signal, complaint: &Signal) -> bool {
    end.timed && complaint.timed && end.at <= complaint.at.after(REPORT_LEAD)
}

/// Returns true if a rank itself reports a lost peer.
pub(crate) fn complains(scene: &FailureScene<'_>, rank: Rank) -> bool {
    let mut marks = complaints(scene);
    marks.any(|(_, mark)| mark.entity.rank() == Some(rank))
}

/// Returns the reports about connections and collectives. A warning of an attempt to connect is none.
pub(crate) fn complaints<'s>(scene: &'s FailureScene<'_>) -> impl Iterator<Item = (usize, &'s Signal)> {
    let is_fabric = |index: usize| scene.family(index) == Some(FailureFamily::Fabric);
    let is_attempt = |sign: &Signal| scene.distinguishes_ends() && is_connect_attempt(sign);
    scene
        .marks()
        .filter(move |(index, sign)| is_fabric(*index) && !is_attempt(sign))
}
