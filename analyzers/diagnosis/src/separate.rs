//! Failures beside the first cause of a draft that do not follow from it: each is a case of its own.
//!
//! A draft collects the evidence of a job's generation, and the verdict names one cause. A fault of the hardware of
//! another node, the kill of a rank elsewhere, or a drill beside a real failure needs a verdict and a repair of its own.

use std::collections::BTreeMap;

use rankguard_model::{CaseFinding, Generation, JobId, NodeId, ReasoningEntry, SharedValue, Timestamp, Verdict};

use crate::knowledge::ClassEntry;
use crate::own_fault::{follows_own_fault, is_drill_beside, is_own_end, is_own_fault};
use crate::{CauseCandidate, FailureScene, Signal, arbiter};

/// Failure of one node in a draft that does not follow from the first cause of the draft.
#[derive(Debug, Clone, PartialEq)]
pub struct SeparateFailure {
    /// Affected job, if one ran there.
    pub job: Option<JobId>,
    /// Generation of the job.
    pub generation: Option<Generation>,
    /// Time of its earliest evidence.
    pub first_at: Timestamp,
    pub verdict: Verdict,
    /// Evidence with roles, first cause first.
    pub findings: Vec<CaseFinding>,
    /// Reasoning log for the person on call.
    pub reasoning: Vec<ReasoningEntry>,
    /// Clearing condition (RG-10).
    pub clears: String,
}

/// Returns the failures of a scene that do not follow from the winner, one for each node, real ones and drills apart.
pub(crate) fn separate_failures(
    scene: &FailureScene<'_>,
    winner: &CauseCandidate,
    now: Timestamp,
) -> Vec<SeparateFailure> {
    let mut groups: BTreeMap<(&NodeId, bool), Vec<usize>> = BTreeMap::new();
    for (index, sign) in scene.each() {
        let Some(node) = sign.node() else { continue };
        let is_separate = is_drill_beside(scene, winner, index)
            || is_own_fault(scene, winner, index) && !is_part_of_repair(scene, winner, sign)
            || is_own_end(scene, winner, index);
        if is_separate {
            groups.entry((node, sign.synthetic)).or_default().push(index);
        }
    }
    let groups = groups.into_iter();
    let mut all: Vec<SeparateFailure> = groups
        .map(|((node, _), own)| separate(scene, winner, node, &own, now))
        .collect();
    all.sort_by_key(|failure| failure.first_at);
    all
}

/// Returns true if the repair of the winner includes a fault: the verdict blames the same machine.
fn is_part_of_repair(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    let is_machine = ClassEntry::of(scene.catalogue, &winner.class).is_machine();
    is_machine && winner.blamed.node() == sign.node()
}

/// Weighs the evidence of one separate failure, and the ranks of its node that ended after it.
fn separate(
    scene: &FailureScene<'_>,
    winner: &CauseCandidate,
    node: &NodeId,
    own: &[usize],
    now: Timestamp,
) -> SeparateFailure {
    let first_at = own.iter().map(|index| scene.signs[*index].at).min().unwrap_or(now);
    // A line of a drill ends no rank, and its rank ends for no real fault.
    let is_drill = own.iter().any(|index| scene.signs[*index].synthetic);
    let is_alike = |sign: &Signal| !scene.distinguishes_ends() || sign.synthetic == is_drill;
    let is_here = |sign: &Signal| sign.node() == Some(node) && sign.at >= first_at && is_alike(sign);
    let follows = |sign: &Signal| sign.exit().is_some() || follows_own_fault(scene, winner, sign);
    let chosen = scene
        .each()
        .filter(|(index, sign)| own.contains(index) || is_here(sign) && follows(sign));
    let signs: Vec<SharedValue<Signal>> = chosen.map(|(index, _)| scene.signs[index].clone()).collect();
    separate_failure(&scene.with_signs(&signs), now)
}

/// Weighs the evidence of one separate failure.
pub(crate) fn separate_failure(scene: &FailureScene<'_>, now: Timestamp) -> SeparateFailure {
    let opinion = arbiter::diagnose(scene, now);
    let first_at = scene.signs.first().map_or(now, |first| first.at);
    SeparateFailure {
        job: scene.job.cloned(),
        generation: scene.job.map(|_| scene.generation),
        first_at,
        verdict: opinion.verdict,
        findings: opinion.findings,
        reasoning: opinion.reasoning,
        clears: opinion.clears,
    }
}
