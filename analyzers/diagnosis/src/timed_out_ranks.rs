//! Ranks that did not report the timeout of a collective which others report: what they did is the next question.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::Rank;

use crate::{CauseCandidate, FailureScene, Signal};

/// Maximum number of ranks that a note names.
const NAMED: usize = 8;

/// Notes the ranks of a job that reported no timeout, and that the operation is one of gloo, of which the class does not
/// have the name.
pub(crate) fn note(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.distinguishes_ends() {
        return;
    }
    for candidate in ranking {
        let class = candidate.class.as_str();
        if !matches!(class, classes::NCCL_TIMEOUT | classes::HCCL_TIMEOUT) {
            continue;
        }
        let support: Vec<&Signal> = candidate.support.iter().map(|index| &*scene.signs[index]).collect();
        let is_gloo = support.iter().any(|sign| sign.text.contains("gloo/transport"));
        let reporters: BTreeSet<Rank> = support.iter().filter_map(|sign| sign.entity.rank()).collect();
        let silent = scene.placements.keys().filter(|rank| !reporters.contains(rank));
        let silent: Vec<String> = silent.map(ToString::to_string).collect();
        if !reporters.is_empty() && !silent.is_empty() && silent.len() <= NAMED && silent.len() <= reporters.len() {
            let (noun, verb) = if silent.len() == 1 {
                ("Rank", "has")
            } else {
                ("Ranks", "have")
            };
            candidate.notes.push(format!(
                "{noun} {} {verb} reported no timeout, and the others have.",
                silent.join(", ")
            ));
        }
        if is_gloo {
            let note = "The operation is one of gloo; the class is that of any collective that exceeds its limit.";
            candidate.notes.push(note.to_owned());
        }
    }
}
