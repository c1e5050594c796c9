//! Engines: one for each family of failures, a pure function from a scene to candidate root causes.

mod fabric;
mod found;
mod gpu;
mod host;
mod node;
mod places;
mod process;
mod scheduler;
mod software;
mod stalled;

use std::collections::BTreeMap;

use rankguard_model::{ClassId, Entity, Role};

use crate::{Candidate, Scene, Sign, Strength};
use found::{Found, Machine};
use places::Places;

/// Family of failures, one for each engine; every marked sign belongs to exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Gpu,
    Host,
    Fabric,
    Scheduler,
    Process,
    Software,
}

/// Engine, and the family without which it has no candidates; none if it always runs.
type Engine = (Option<Family>, fn(&Scene<'_>, &mut Vec<Candidate>));

const ENGINES: [Engine; 7] = [
    (Some(Family::Gpu), gpu::candidates),
    (Some(Family::Host), host::candidates),
    (None, node::candidates),
    (None, fabric::candidates),
    (Some(Family::Scheduler), scheduler::candidates),
    (Some(Family::Software), software::candidates),
    (None, process::candidates),
];

/// Returns the candidates of all engines, in a fixed order of engines.
pub(crate) fn candidates(scene: &Scene<'_>) -> Vec<Candidate> {
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
fn add(all: &mut Vec<Candidate>, candidate: Option<Candidate>) {
    if let Some(candidate) = candidate {
        all.push(candidate);
    }
}

/// Returns confirmations and consequences without a cause: a memory row that waits for remapping, an internal error
/// of a library. Nothing else happened that they could confirm or follow from, so they become symptoms.
fn witnesses(scene: &Scene<'_>) -> Vec<Candidate> {
    let mut found: BTreeMap<&ClassId, Candidate> = BTreeMap::new();
    for (index, sign) in scene.marks() {
        let (Some(class), Some(mark)) = (sign.class(), sign.mark()) else {
            continue;
        };
        if mark.role == Role::Noise {
            continue;
        }
        let candidate = found
            .entry(class)
            .or_insert_with(|| Candidate::new(class.clone(), machine_of(sign), index, Strength::Symptom, 0.0));
        candidate.support.insert(index);
        candidate.score = candidate.score.max(mark.confidence * 0.6);
    }
    found.into_values().collect()
}

/// Returns the family of a class in a layer; [`Scene::family`] caches it for every sign.
pub(crate) fn family(class: &str, layer: &str) -> Option<Family> {
    Some(match class {
        "none" => return None,
        "host-oom-kill" | "container-oom-kill" => Family::Host,
        "killed-by-signal"
        | "segfault"
        | "mpi-ucx-segfault"
        | "process-aborted"
        | "launcher-child-failed"
        | "rank-exit-unknown"
        | "subprocess-failed" => Family::Process,
        "remote-worker-lost" | "hang-no-error" | "hang-stalled-ranks" | "collective-mismatch" => Family::Fabric,
        "gpu-not-visible" => Family::Software,
        _ if class.starts_with("gpu-") || class.starts_with("unknown-xid") || class.starts_with("unknown-sxid") => {
            Family::Gpu
        }
        "nvswitch-error" | "fabric-manager-not-ready" => Family::Gpu,
        _ if class.starts_with("nccl-") || class.starts_with("hccl-") || layer == "network" => Family::Fabric,
        _ if layer == "hardware" => Family::Host,
        _ if layer == "scheduler" => Family::Scheduler,
        _ => Family::Software,
    })
}

/// Returns the root marks of one family.
fn roots<'a>(scene: &'a Scene<'_>, wanted: Family) -> impl Iterator<Item = (usize, &'a Sign)> {
    scene
        .roots()
        .filter(move |(index, _)| scene.family(*index) == Some(wanted))
}

/// Returns the most specific machine part of a sign: a rank maps to its node, a job to none.
fn machine_of(sign: &Sign) -> Entity {
    match &sign.entity {
        Entity::Rank { node, .. } => Entity::Node { node: node.clone() },
        Entity::Job { .. } => Entity::Unknown,
        other => other.clone(),
    }
}

/// Returns true if two signs may concern the same node: both name it, or one of them names none (offline, an empty
/// name denotes an unknown node).
fn same_node(one: &Sign, other: &Sign) -> bool {
    match (one.node(), other.node()) {
        (Some(one), Some(other)) => one == other || one.as_str().is_empty() || other.as_str().is_empty(),
        _ => true,
    }
}

/// Returns the confidence of a sign's mark.
fn confidence(sign: &Sign) -> f64 {
    sign.mark().map_or(0.0, |mark| mark.confidence)
}
