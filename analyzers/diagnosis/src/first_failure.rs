//! Tables of launchers that list several failed workers and name the one that failed first.
//!
//! torchrun observes the ends of the workers of its node itself, so the order in its table is that of the ends, and the
//! other workers ended later. Nothing is taken from a table if a line names a cause: the table only shows an end.

use rankguard_faults::classes;
use rankguard_model::{ProcessExit, Rank};

use crate::exit_class::exit_class;
use crate::sorted_set::SmallSortedSet;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Field of logs that are read later: place of a process in the table of a launcher.
pub const SUMMARY_FIELD: &str = "summary";
/// Value of [`SUMMARY_FIELD`] for the process that failed first.
pub const FIRST_OF_SUMMARY: &str = "first";
/// Value of [`SUMMARY_FIELD`] for a process that failed after the first one of its table.
pub const LATER_IN_SUMMARY: &str = "later";
/// Field of logs that are read later: exit code of a process in a table, or the negative number of a signal.
pub const EXIT_STATUS_FIELD: &str = "exit_status";

/// Score of the end of the process that failed first.
const SCORE: f64 = 0.7;

/// Blames the process that a table names as the first one, with the class of its own exit. `is_preferred` if its end outranks the
/// losses that other processes report.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>, is_preferred: bool) {
    let names_cause = |other: &CauseCandidate| other.strength > CandidateStrength::Outcome;
    if !scene.is_of_logs() || !is_preferred && ranking.iter().any(names_cause) {
        return;
    }
    let firsts = scene.marks().filter(|(_, sign)| is_placed(sign, FIRST_OF_SUMMARY));
    let first = firsts.min_by_key(|(index, sign)| (!sign.timed, sign.at, *index));
    let Some((rank, first)) = first.and_then(|(_, sign)| Some((sign.rank_named()?, sign))) else {
        return;
    };
    let has_later = scene.marks().any(|(_, sign)| is_placed(sign, LATER_IN_SUMMARY));
    if has_later {
        forget_later(scene, ranking);
        for candidate in ranking.iter_mut().filter(|other| is_about(scene, other, rank)) {
            let reports = scene.marks().filter(|(_, sign)| is_placed(sign, FIRST_OF_SUMMARY));
            candidate.support.extend(reports.map(|(index, _)| index));
            candidate.root_rank = Some(rank);
            candidate.blamed = scene.rank_entity(rank, None);
            candidate
                .notes
                .push(format!("The launcher names rank {rank} as the one that failed first."));
        }
    }
    let status = first.field(EXIT_STATUS_FIELD).and_then(|text| text.parse::<i32>().ok());
    let Some(signal) = status.filter(|status| *status < 0) else {
        return;
    };
    let (class, _) = exit_class(ProcessExit::Signal(-signal));
    // A process does not end itself by SIGKILL.
    if class == classes::KILLED_BY_SIGNAL {
        return;
    }
    if let Some(candidate) = ranking
        .iter_mut()
        .find(|other| other.class.as_str() == class && is_about(scene, other, rank))
    {
        candidate.score = candidate.score.max(SCORE);
        let timed = candidate.support.iter().filter(|index| scene.signs[*index].timed);
        let rank_of = |index: usize| {
            let sign = &scene.signs[index];
            (sign.at, sign.class() != Some(&candidate.class))
        };
        candidate.first = timed.min_by_key(|index| rank_of(*index)).unwrap_or(candidate.first);
    }
}

fn is_placed(sign: &Signal, place: &str) -> bool {
    sign.field(SUMMARY_FIELD) == Some(place)
}

/// Removes the reports of processes that ended after the first one from the candidates, and candidates without another
/// report.
fn forget_later(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    let is_later = |index: usize| is_placed(&scene.signs[index], LATER_IN_SUMMARY);
    for candidate in ranking.iter_mut() {
        let mut support = SmallSortedSet::default();
        support.extend(candidate.support.iter().filter(|index| !is_later(*index)));
        if is_later(candidate.first)
            && let Some(other) = support.iter().next()
        {
            candidate.first = other;
        }
        candidate.support = support;
    }
    ranking.retain(|candidate| !is_later(candidate.first));
}

/// Returns true if a candidate rests on a report of the end of a rank.
fn is_about(scene: &FailureScene<'_>, candidate: &CauseCandidate, rank: Rank) -> bool {
    candidate.support.iter().any(|index| {
        let sign = &scene.signs[index];
        sign.field(EXIT_STATUS_FIELD).is_some() && sign.rank_named() == Some(rank)
    })
}
