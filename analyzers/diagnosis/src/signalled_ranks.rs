//! Ranks that a signal ended while their peers report a lost connection.
//!
//! A kernel closes the sockets of a killed process before its parent receives the exit, so the report of a peer may
//! carry the earlier time. The report is still a consequence: the killed rank did not complain of a peer itself.

use std::time::Duration;

use rankguard_model::{ProcessExit, Rank};

use crate::engine::FailureFamily;
use crate::exit_class::is_fault;
use crate::{FailureScene, Signal};

/// Maximum lead of a peer's report over the end of the killed rank: scheduling delay on a busy node, and clock skew.
const REPORT_LEAD: Duration = Duration::from_secs(2);

/// Returns true for SIGKILL and the signals of a process that failed by itself. Launchers send SIGTERM to survivors, and
/// a lost peer causes SIGPIPE.
fn strikes(exit: ProcessExit) -> bool {
    exit.shell_code() == 137 || is_fault(exit)
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

/// Returns true if a peer's report of a lost connection can be the consequence of a rank's end.
pub(crate) fn explains_complaint(end: &Signal, complaint: &Signal) -> bool {
    end.timed && complaint.timed && end.at <= complaint.at.after(REPORT_LEAD)
}

/// Returns true if a rank itself reports a lost peer.
pub(crate) fn complains(scene: &FailureScene<'_>, rank: Rank) -> bool {
    scene
        .marks()
        .any(|(index, mark)| scene.family(index) == Some(FailureFamily::Fabric) && mark.entity.rank() == Some(rank))
}
