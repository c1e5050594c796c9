//! Faults of a GPU that the driver reports first without a device and then with one.

use std::time::Duration;

use rankguard_model::{DeviceKind, Entity, EvidenceSource};

use crate::engine::same_node;
use crate::{CandidateStrength, CauseCandidate, FailureScene};

/// Maximum time between the reports.
const REPORT: Duration = Duration::from_secs(60);

/// Joins a fault of an unnamed GPU with that of the only GPU of the node for which the kernel reports the same.
pub(crate) fn join(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.has_fault_ends {
        return;
    }
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
        unnamed.support.extend(other.support.iter());
        ranking.remove(named);
        return;
    }
}
