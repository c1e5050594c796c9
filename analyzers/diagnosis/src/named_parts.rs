//! Faults that a log reports first without the failed part and then with it: the driver of a GPU names the device in its
//! second line, and Kubernetes names the node after the pod.

use std::time::Duration;

use rankguard_model::{DeviceKind, Entity, EvidenceSource};

use crate::engine::same_node;
use crate::{CandidateStrength, CauseCandidate, FailureScene};

/// Maximum time between the reports.
const REPORT: Duration = Duration::from_secs(60);

/// Joins a fault of an unnamed part with that of the only part for which the same log reports the same.
pub(crate) fn join(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if scene.has_fault_ends {
        name_gpus(scene, ranking);
        if scene.is_of_logs() {
            name_nodes(scene, ranking);
        }
    }
}

/// Joins a fault of a machine that a log does not name with that of the only node for which the log reports the same.
fn name_nodes(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    let is_unnamed = |candidate: &CauseCandidate| {
        candidate.blamed == Entity::Unknown
            && candidate.shared.is_none()
            && candidate.strength >= CandidateStrength::Cause
    };
    let is_named = |candidate: &CauseCandidate| match &candidate.blamed {
        Entity::Node { node } => !node.as_str().is_empty(),
        _ => false,
    };
    let Some(at) = ranking.iter().position(is_unnamed) else {
        return;
    };
    let log = |candidate: &CauseCandidate| &scene.signs[candidate.first].evidence.node;
    let is_same = |other: &usize| {
        let named = &ranking[*other];
        is_named(named) && named.class == ranking[at].class && log(named) == log(&ranking[at])
    };
    let mut same = (0..ranking.len()).filter(is_same);
    let (Some(named), None) = (same.next(), same.next()) else {
        return;
    };
    let other = ranking[named].clone();
    let unnamed = &mut ranking[at];
    unnamed.blamed = other.blamed;
    unnamed.first = unnamed.first.min(other.first);
    unnamed.support.extend(other.support.iter());
    ranking.remove(named);
}

/// Joins a fault of an unnamed GPU with that of the only GPU of the node for which the kernel reports the same.
fn name_gpus(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    let is_kernel = |candidate: &CauseCandidate| {
        let source = scene.signs[candidate.first].source;
        source == EvidenceSource::KernelLog && candidate.strength == CandidateStrength::Overriding
    };
    let is_gpu = |entity: &Entity| matches!(entity, Entity::Device { device, .. } if device.kind == DeviceKind::Gpu);
    for at in 0..ranking.len() {
        let unnamed = &ranking[at];
        if !is_kernel(unnamed) || !matches!(unnamed.blamed, Entity::Node { .. }) {
            continue;
        }
        let report = &scene.signs[unnamed.first];
        let is_same = |other: &usize| {
            let named = &ranking[*other];
            let sign = &scene.signs[named.first];
            let is_near = sign.at <= report.at.after(REPORT) && report.at <= sign.at.after(REPORT);
            let is_of_moment = sign.timed == report.timed && (!sign.timed || is_near);
            is_kernel(named) && named.class == unnamed.class && is_of_moment && same_node(sign, report)
        };
        let mut same = (0..ranking.len()).filter(|other| *other != at && is_same(other));
        let (Some(named), None) = (same.next(), same.next()) else {
            continue;
        };
        if !is_gpu(&ranking[named].blamed) {
            continue;
        }
        let other = ranking[named].clone();
        let unnamed = &mut ranking[at];
        unnamed.blamed = other.blamed;
        unnamed.root_rank = unnamed.root_rank.or(other.root_rank);
        unnamed.first = unnamed.first.min(other.first);
        unnamed.support.extend(other.support.iter());
        ranking.remove(named);
        return;
    }
}
