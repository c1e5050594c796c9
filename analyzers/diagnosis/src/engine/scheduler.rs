//! Orders from above: time limits, cancellations, preemption, placement that never came.

use std::collections::BTreeMap;

use super::{Family, confidence, roots};
use crate::{Candidate, Scene, Sign, Strength};

pub(super) fn candidates(scene: &Scene<'_>, all: &mut Vec<Candidate>) {
    // A scheduler ends the rest of a step whose first task failed; then its words say nothing about the cause. What ends after
    // it was told to end says nothing either.
    let ended = scene.marks().find(|(_, sign)| {
        sign.class()
            .is_some_and(|class| class.as_str() == "launcher-child-failed")
    });
    let watched = scene.exits().next().is_some();
    let failed_before = |index: usize| watched || ended.is_some_and(|(first, _)| first < index);
    let mut found: BTreeMap<&str, Candidate> = BTreeMap::new();
    for (index, sign) in roots(scene, Family::Scheduler) {
        let Some(class) = sign.class() else { continue };
        // A pod that waited until there was room for it has not failed.
        let placed = |later: &Sign| later.is_signed("pod-assigned");
        if class.as_str() == "k8s-unschedulable" && scene.signs[index..].iter().any(|later| placed(later)) {
            continue;
        }
        // A scheduler also cancels what has failed by itself, so only a reason that no job can cause overrides the job's
        // own words.
        let strength = match class.as_str() {
            // That a launch failed is told of the node, whatever failed there.
            "slurm-node-fail" if confidence(sign) < 0.7 => Strength::Symptom,
            "slurm-time-limit" | "slurm-node-fail" | "preempted" => Strength::Overriding,
            // Who says that a signal came from outside knows; who only saw one end may mean the launcher's own.
            "external-termination" if confidence(sign) >= 0.8 => Strength::Cause,
            "job-cancelled" | "external-termination" if failed_before(index) => Strength::Outcome,
            "job-cancelled" | "external-termination" => Strength::Symptom,
            _ => Strength::Cause,
        };
        // What a scheduler does to the rest of a step says less than the exit of the task that it follows from.
        let score = confidence(sign) * if strength == Strength::Outcome { 0.4 } else { 1.0 };
        found
            .entry(class.as_str())
            .and_modify(|candidate| {
                candidate.support.insert(index);
                candidate.score = candidate.score.max(score);
                // Who was told first is chance.
                candidate.root_rank = candidate
                    .root_rank
                    .filter(|rank| sign.rank().is_none_or(|other| other == *rank));
            })
            .or_insert_with(|| {
                let mut candidate = Candidate::new(class.clone(), scene.job_entity(), index, strength, score);
                candidate.root_rank = sign.rank();
                candidate
            });
    }
    all.extend(found.into_values());
}
