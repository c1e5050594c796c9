//! Engine for orders of the scheduler: time limits, cancellations, preemption, unschedulable jobs.

use std::collections::BTreeMap;

use rankguard_faults::classes;
use rankguard_model::{Entity, NodeId, REMOVAL_NOTICE, Role};

use super::{FailureFamily, confidence, roots};
use crate::first_rank::PROCESS_HOST_FIELD;
use crate::job_numbers::{are_of_different_jobs, is_row};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    // A scheduler ends the rest of a step after its first task failed; then its messages do not name the cause.
    // Neither does the end of a process that was ordered to end.
    // The launcher that states the host of an ended process states the signal of the same end below it.
    let is_same_report = |sign: &Signal| sign.field(PROCESS_HOST_FIELD).is_some();
    let ended = scene
        .marks()
        .find(|(_, sign)| is_end_of_task(scene, sign) && !is_same_report(sign));
    let watched = scene.exits().next().is_some();
    let failed_before = |index: usize| watched || ended.is_some_and(|(first, _)| first < index);
    let mut found: BTreeMap<&str, CauseCandidate> = BTreeMap::new();
    for (index, sign) in roots(scene, FailureFamily::Scheduler) {
        let Some(class) = sign.class() else { continue };
        // A pod that waited until there was room for it has not failed.
        let placed = |later: &Signal| later.is_signed("pod-assigned");
        if class.as_str() == classes::K8S_UNSCHEDULABLE && scene.signs[index..].iter().any(|later| placed(later)) {
            continue;
        }
        // A scheduler also cancels a job that failed by itself, so only a reason that no job can cause overrides the
        // job's own messages.
        let strength = match class.as_str() {
            // A failed launch is reported as a node failure, independent of the reason.
            classes::SLURM_NODE_FAIL if confidence(sign) < 0.7 => CandidateStrength::Symptom,
            classes::SLURM_TIME_LIMIT | classes::SLURM_NODE_FAIL | classes::PREEMPTED => CandidateStrength::Overriding,
            // An explicit report of an external signal is certain; a mere observed end may be the launcher's own
            // action.
            classes::EXTERNAL_TERMINATION if confidence(sign) >= 0.8 => CandidateStrength::Cause,
            classes::JOB_CANCELLED | classes::EXTERNAL_TERMINATION if failed_before(index) => {
                CandidateStrength::Outcome
            }
            classes::JOB_CANCELLED | classes::EXTERNAL_TERMINATION => CandidateStrength::Symptom,
            _ => CandidateStrength::Cause,
        };
        // The scheduler's action on the rest of a step is weaker evidence than the exit of the task that caused it.
        let score = confidence(sign)
            * if strength == CandidateStrength::Outcome {
                0.4
            } else {
                1.0
            };
        if let Some(candidate) = found.get(class.as_str())
            && scene.is_of_logs()
            && are_of_different_jobs(&scene.signs[candidate.first], sign)
        {
            continue;
        }
        found
            .entry(class.as_str())
            .and_modify(|candidate| {
                candidate.support.insert(index);
                // A row of accounting has no time of the end.
                let first = &scene.signs[candidate.first];
                if scene.is_of_logs() && is_row(first) && !first.timed && sign.timed {
                    candidate.first = index;
                }
                candidate.score = candidate.score.max(score);
                // Slurm reports a failed prolog first without the node, then with it.
                if scene.has_fault_ends && matches!(candidate.blamed, Entity::Job { .. }) {
                    candidate.blamed = lost_node(sign).unwrap_or_else(|| candidate.blamed.clone());
                }
                // The order of notification is random.
                candidate.root_rank = candidate
                    .root_rank
                    .filter(|rank| sign.rank().is_none_or(|other| other == *rank));
            })
            .or_insert_with(|| {
                let blamed = lost_node(sign).unwrap_or_else(|| scene.job_entity());
                let mut candidate = CauseCandidate::new(class.clone(), blamed, index, strength, score);
                candidate.root_rank = sign.rank();
                candidate.shared = lost_nodes(sign).filter(|_| scene.is_of_logs());
                if candidate.shared.is_some() {
                    candidate.blamed = Entity::Unknown;
                }
                candidate
            });
    }
    let requeued = scene
        .marks()
        .find(|(_, sign)| scene.is_of_logs() && sign.is_signed(REQUEUED));
    if let (Some((index, _)), Some(candidate)) = (requeued, found.get_mut(classes::EXTERNAL_TERMINATION))
        && candidate.support.contains(index)
    {
        candidate.notes.push(REQUEUE_NOTE.to_owned());
    }
    all.extend(found.into_values());
}

/// Signature of a job that Slurm stops to start it again.
const REQUEUED: &str = "slurm-requeue";
const REQUEUE_NOTE: &str = "Slurm states that it queued the job again: it starts the job by itself.";

/// Classes of reports that a task of a job ended.
const TASK_ENDS: [&str; 6] = [
    classes::CONTAINER_OOM_KILL,
    classes::HOST_OOM_KILL,
    classes::KILLED_BY_SIGNAL,
    classes::MPI_UCX_SEGFAULT,
    classes::PROCESS_ABORTED,
    classes::SEGFAULT,
];

/// Returns true for a report that a task of a job ended: with a non-zero code, by a crash or by a kill. Agents report the
/// ends of ranks themselves.
fn is_end_of_task(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let is_noise = sign.mark().is_some_and(|mark| mark.role == Role::Noise);
    let is_end = |class: &str| {
        let is_launchers = class == classes::LAUNCHER_CHILD_FAILED;
        is_launchers || scene.is_of_logs() && !is_noise && TASK_ENDS.contains(&class)
    };
    sign.class().is_some_and(|class| is_end(class.as_str()))
}

/// Returns the nodes in a message about several lost nodes: `gpu-[04-07]`.
fn lost_nodes(sign: &Signal) -> Option<String> {
    let is_lost = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::SLURM_NODE_FAIL);
    let names = sign
        .field("nodes")
        .filter(|_| is_lost)?
        .trim_end_matches([',', '.', ':', ';']);
    names.contains(['[', ',']).then(|| format!("nodes {names}"))
}

/// Fields of the names in reports of lost nodes, the last one in the rows of `sinfo --Node --long` (sinfo(1)).
const NODE_FIELDS: [&str; 5] = ["node", "nodes", "failed_node", "requeued_node", "listed_node"];

/// Returns the node that a scheduler reports as lost, if the message names one.
fn lost_node(sign: &Signal) -> Option<Entity> {
    if sign.is_signed(REMOVAL_NOTICE) {
        return Some(sign.entity.clone());
    }
    sign.class()
        .filter(|class| class.as_str() == classes::SLURM_NODE_FAIL)?;
    if let Entity::Node { node } = &sign.entity
        && !node.as_str().is_empty()
    {
        return Some(sign.entity.clone());
    }
    let name = NODE_FIELDS.iter().find_map(|field| sign.field(field))?;
    let name = name.trim_end_matches([',', '.', ':', ';']);
    // `gpu-[04-07]` and `gpu-04,gpu-05` are several.
    let is_one = !name.is_empty() && !name.contains(['[', ',', '*']);
    is_one.then(|| Entity::Node {
        node: NodeId::from(name),
    })
}
