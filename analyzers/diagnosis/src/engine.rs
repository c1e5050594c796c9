//! Engines: one for each family of failures, a pure function from a scene to candidate root causes.

mod candidate_map;
mod fabric;
pub(crate) mod gpu;
mod host;
mod node;
mod node_signals;
mod process;
mod scheduler;
mod software;
mod stalled;

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{ClassId, Entity, NodeId, Role};

use crate::knowledge::ClassEntry;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};
use candidate_map::{CandidateMap, MachineRef};
pub use host::USUAL_RANK_FIELD;
use node_signals::NodeSignals;
pub(crate) use software::lacking_node;

/// Family of failures, one for each engine; every marked sign belongs to exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureFamily {
    Gpu,
    Host,
    Fabric,
    Scheduler,
    Process,
    Software,
}

/// Engine, and the family without which it has no candidates; none if it always runs.
type EngineEntry = (Option<FailureFamily>, fn(&FailureScene<'_>, &mut Vec<CauseCandidate>));

const ENGINES: [EngineEntry; 7] = [
    (Some(FailureFamily::Gpu), gpu::candidates),
    (Some(FailureFamily::Host), host::candidates),
    (None, node::candidates),
    (None, fabric::candidates),
    (Some(FailureFamily::Scheduler), scheduler::candidates),
    (Some(FailureFamily::Software), software::candidates),
    (None, process::candidates),
];

/// Returns the candidates of all engines, in a fixed order of engines.
pub(crate) fn candidates(scene: &FailureScene<'_>) -> Vec<CauseCandidate> {
    // Most scenes have one.
    let mut all = Vec::with_capacity(1);
    for (family, engine) in ENGINES {
        if family.is_none_or(|family| scene.has(family)) {
            engine(scene, &mut all);
        }
    }
    if all.is_empty() {
        all.extend(witnesses(scene));
    }
    all
}

/// Pushes a candidate if there is one, usually none. `extend` with an option would reallocate the capacity of one.
fn add(all: &mut Vec<CauseCandidate>, candidate: Option<CauseCandidate>) {
    if let Some(candidate) = candidate {
        all.push(candidate);
    }
}

/// Returns confirmations and consequences without a cause: a memory row that waits for remapping, an internal error
/// of a library. Nothing else happened that they could confirm or follow from, so they become symptoms.
fn witnesses(scene: &FailureScene<'_>) -> Vec<CauseCandidate> {
    let mut found: BTreeMap<&ClassId, CauseCandidate> = BTreeMap::new();
    for (index, sign) in scene.marks() {
        let (Some(class), Some(mark)) = (sign.class(), sign.mark()) else {
            continue;
        };
        if mark.role == Role::Noise {
            continue;
        }
        let candidate = found.entry(class).or_insert_with(|| {
            let blamed = witnessed(scene, class, sign);
            CauseCandidate::new(class.clone(), blamed, index, CandidateStrength::Symptom, 0.0)
        });
        candidate.support.insert(index);
        candidate.score = candidate.score.max(mark.confidence * 0.6);
    }
    found.into_values().collect()
}

/// Returns the machine of a witness, or the job for a class that concerns no machine.
fn witnessed(scene: &FailureScene<'_>, class: &ClassId, sign: &Signal) -> Entity {
    let known = ClassEntry::of(scene.catalogue, class);
    let is_of_job = !known.is_machine() && known.layer() != "platform" && scene.is_of_logs();
    match machine_of(sign) {
        Entity::Unknown if is_of_job => scene.job_entity(),
        machine => machine,
    }
}

/// Returns the family of a class in a layer; [`FailureScene::family`] caches it for every sign.
pub(crate) fn family(class: &str, layer: &str) -> Option<FailureFamily> {
    Some(match class {
        classes::NONE => return None,
        classes::HOST_OOM_KILL | classes::CONTAINER_OOM_KILL => FailureFamily::Host,
        classes::KILLED_BY_SIGNAL
        | classes::SEGFAULT
        | classes::MPI_UCX_SEGFAULT
        | classes::PROCESS_ABORTED
        | classes::LAUNCHER_CHILD_FAILED
        | classes::RANK_EXIT_UNKNOWN
        | classes::SUBPROCESS_FAILED => FailureFamily::Process,
        classes::REMOTE_WORKER_LOST
        | classes::HANG_NO_ERROR
        | classes::HANG_STALLED_RANKS
        | classes::COLLECTIVE_MISMATCH => FailureFamily::Fabric,
        classes::GPU_NOT_VISIBLE => FailureFamily::Software,
        _ if class.starts_with("gpu-")
            || class.starts_with(classes::UNKNOWN_XID)
            || class.starts_with(classes::UNKNOWN_SXID) =>
        {
            FailureFamily::Gpu
        }
        classes::NVSWITCH_ERROR | classes::FABRIC_MANAGER_NOT_READY | classes::POWER_FAULT => FailureFamily::Gpu,
        _ if class.starts_with("nccl-") || class.starts_with("hccl-") || layer == "network" => FailureFamily::Fabric,
        _ if layer == "hardware" => FailureFamily::Host,
        _ if layer == "scheduler" => FailureFamily::Scheduler,
        _ => FailureFamily::Software,
    })
}

/// Returns the root marks of one family.
fn roots<'a>(scene: &'a FailureScene<'_>, wanted: FailureFamily) -> impl Iterator<Item = (usize, &'a Signal)> {
    scene
        .roots()
        .filter(move |(index, _)| scene.family(*index) == Some(wanted))
}

/// Returns the most specific machine part of a sign: a rank maps to its node, a job to none.
fn machine_of(sign: &Signal) -> Entity {
    match &sign.entity {
        Entity::Rank { node, .. } => Entity::Node { node: node.clone() },
        Entity::Job { .. } => Entity::Unknown,
        other => other.clone(),
    }
}

/// Returns true if two signs may concern the same node: both name it, or one of them names none (offline, an empty
/// name denotes an unknown node).
pub(crate) fn same_node(one: &Signal, other: &Signal) -> bool {
    match (one.node(), other.node()) {
        (Some(one), Some(other)) => one == other || one.as_str().is_empty() || other.as_str().is_empty(),
        _ => true,
    }
}

/// Longest lead of the end of a rank over the report of the fault that ended it. Reports of one node carry one clock.
const REPORT_LAG: Duration = Duration::from_secs(1);

/// Confirms a fault of a node by the ranks that ended there. Ranks that had ended long before the fault was reported
/// confirm nothing.
fn confirm_ends(scene: &FailureScene<'_>, candidate: &mut CauseCandidate, node: &NodeId, ends: &[(usize, &Signal)]) {
    let first = &scene.signs[candidate.first];
    let lead = |end: &Signal| {
        let is_before = scene.has_fault_limits && first.timed && end.timed && end.at < first.at;
        is_before.then(|| first.at.since(end.at))
    };
    // A drill ends its own rank only, and nothing real ends a rank of a drill.
    let ends: Vec<&(usize, &Signal)> = ends
        .iter()
        .filter(|(_, end)| !scene.distinguishes_ends() || end.synthetic == first.synthetic)
        .collect();
    let is_after = ends.iter().any(|(_, end)| lead(end).is_none());
    let named = named_end(scene, first, &ends);
    let near = ends
        .iter()
        .filter(|(index, _)| named.is_none_or(|(named, _)| *index == named))
        .filter(|(_, end)| lead(end).is_none_or(|lead| lead <= REPORT_LAG));
    let note = || match named.and_then(|(_, end)| end.rank()) {
        Some(rank) if is_after => format!("Rank {rank} on node {node}, the process that it names, ended after it."),
        _ if is_after => format!("Ranks that ran on node {node} ended after it."),
        _ => format!("Ranks that ran on node {node} ended just before it was reported."),
    };
    candidate.confirm(near.map(|(index, _)| *index), note);
    if !ends.is_empty()
        && ends
            .iter()
            .all(|(_, end)| lead(end).is_some_and(|lead| lead > REPORT_LAG))
    {
        candidate.notes.push(format!(
            "The ranks that ran on node {node} had ended before it was reported."
        ));
    }
}

/// Returns the end of the process that a fault names: other processes of its node end as survivors do.
pub(crate) fn named_end<'a>(
    scene: &FailureScene<'_>,
    fault: &Signal,
    ends: &[&'a (usize, &'a Signal)],
) -> Option<(usize, &'a Signal)> {
    let pid = fault
        .pid()
        .filter(|_| scene.distinguishes_ends() && fault.mark().is_some())?;
    let mut ends = ends.iter().filter(|(_, end)| end.pid() == Some(pid));
    ends.next().map(|(index, end)| (*index, *end))
}

/// Returns the confidence of a sign's mark.
fn confidence(sign: &Signal) -> f64 {
    sign.mark().map_or(0.0, |mark| mark.confidence)
}
