//! Ranks that a signal stopped (state T): they stand, and the cause is the sender of the signal, which nothing shows.

use rankguard_faults::classes;

use crate::signal::{STATE_FIELD, STOPPED_STATE};
use crate::{CauseCandidate, FailureScene, Signal};

/// Classes of jobs and ranks that make no steps.
const STANDING: [&str; 2] = [classes::HANG_NO_ERROR, classes::HANG_STALLED_RANKS];

/// Returns true if the cause is a rank without steps, and its agent reported that a signal had stopped its process. The
/// newest report counts.
pub(crate) fn is_stopped(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
    let rank = cause.root_rank.or(cause.blamed.rank());
    let Some(rank) = rank.filter(|_| scene.distinguishes_ends() && STANDING.contains(&cause.class.as_str())) else {
        return false;
    };
    let is_report = |sign: &&Signal| sign.is_standing() && sign.entity.rank() == Some(rank);
    let reports = scene.marks().map(|(_, sign)| sign).filter(is_report);
    reports
        .last()
        .is_some_and(|sign| sign.field(STATE_FIELD) == Some(STOPPED_STATE))
}
