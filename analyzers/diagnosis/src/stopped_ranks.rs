//! Ranks that a signal stopped (state T): they stand, and the cause is the sender of the signal, which nothing shows.

use std::collections::BTreeMap;

use rankguard_faults::classes;
use rankguard_model::Rank;

use crate::signal::{STATE_FIELD, STOPPED_STATE};
use crate::{CauseCandidate, FailureScene, Signal};

/// Classes of jobs and ranks that make no steps.
const STANDING: [&str; 2] = [classes::HANG_NO_ERROR, classes::HANG_STALLED_RANKS];

/// Returns true if the cause is a rank without steps, or several, and their agents reported that a signal had stopped their
/// processes. The newest report counts.
pub(crate) fn is_stopped(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
    if !scene.distinguishes_ends() || !STANDING.contains(&cause.class.as_str()) {
        return false;
    }
    match cause.root_rank.or(cause.blamed.rank()) {
        Some(rank) => stopped_ranks(scene).contains(&rank),
        None => stands_for_several(scene, cause),
    }
}

/// Returns true if the cause is that a signal stopped several ranks: none of them is blamed before the others.
pub(crate) fn stands_for_several(scene: &FailureScene<'_>, cause: &CauseCandidate) -> bool {
    let is_of_none = cause.root_rank.is_none() && cause.blamed.rank().is_none();
    let is_stalled = cause.class.as_str() == classes::HANG_STALLED_RANKS;
    scene.has_local_causes() && is_of_none && is_stalled && stopped_ranks(scene).len() > 1
}

/// Returns the ranks that a signal had stopped by the newest report about each.
pub(crate) fn stopped_ranks(scene: &FailureScene<'_>) -> Vec<Rank> {
    let mut newest: BTreeMap<Rank, &Signal> = BTreeMap::new();
    for (_, sign) in scene.marks().filter(|(_, sign)| sign.is_standing()) {
        if let Some(rank) = sign.entity.rank() {
            newest.insert(rank, sign);
        }
    }
    newest.retain(|_, sign| sign.field(STATE_FIELD) == Some(STOPPED_STATE));
    newest.into_keys().collect()
}
