//! Orders from above: time limits, cancellations, preemption, placement that never came.

use std::collections::BTreeMap;

use super::{Family, confidence, roots};
use crate::{Candidate, Scene, Strength};

pub(super) fn candidates(scene: &Scene<'_>) -> Vec<Candidate> {
    let mut found: BTreeMap<&str, Candidate> = BTreeMap::new();
    for (index, sign) in roots(scene, Family::Scheduler) {
        let Some(class) = sign.class() else { continue };
        // A scheduler also cancels what has failed by itself, so only a reason that no job can cause overrides the job's
        // own words.
        let strength = match class.as_str() {
            "slurm-time-limit" | "slurm-node-fail" | "preempted" => Strength::Overriding,
            "job-cancelled" | "external-termination" => Strength::Symptom,
            _ => Strength::Cause,
        };
        found
            .entry(class.as_str())
            .and_modify(|candidate| {
                candidate.support.insert(index);
                candidate.score = candidate.score.max(confidence(sign));
            })
            .or_insert_with(|| {
                let mut candidate =
                    Candidate::new(class.clone(), scene.job_entity(), index, strength, confidence(sign));
                candidate.root_rank = sign.rank();
                candidate
            });
    }
    found.into_values().collect()
}
