//! Links of network adapters that were lost before connections failed.
//!
//! An adapter reports an unplugged cable also for a port that is not used, when its driver is loaded, so the report alone
//! is no failure. It is the cause if connections of ranks fail right after it. A bond without an active interface has lost
//! the link of its last interface.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, Role};

use crate::engine::same_node;
use crate::signalled_ranks::complaints;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Longest time from the loss of a link to the errors of connections over it. RDMA gives up after seven retries: 30 s with
/// the time limit that NCCL sets, and up to two minutes with the largest one in use.
const RETRIES: Duration = Duration::from_secs(120);
/// Longest time from the loss of the last link of a bond to the report of the bond, which polls its interfaces.
const POLLED: Duration = Duration::from_secs(60);
/// Score of an unplugged cable before failed connections.
const UNPLUGGED: f64 = 0.7;
/// Signature of a bond without an active interface.
const BOND_SIGNATURE: &str = "bond-without-partner";

/// Adds a candidate for each adapter with a report of an unplugged cable right before connections failed.
pub(crate) fn blame_unplugged(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.has_fault_ends {
        return;
    }
    let mut found: Vec<CauseCandidate> = Vec::new();
    for (index, sign) in scene.marks().filter(|(_, sign)| is_unplugged(sign)) {
        if let Some(known) = found.iter_mut().find(|candidate| candidate.blamed == sign.entity) {
            known.support.insert(index);
            continue;
        }
        let is_known = |candidate: &CauseCandidate| is_link_down(candidate) && candidate.blamed == sign.entity;
        if ranking.iter().any(is_known) || !precedes_errors(scene, sign) {
            continue;
        }
        let class = classes::NIC_LINK_DOWN;
        let strength = CandidateStrength::Overriding;
        let mut candidate = CauseCandidate::new(class, sign.entity.clone(), index, strength, UNPLUGGED);
        let note = "Connections failed right after the cable was unplugged.";
        candidate.notes.push(note.to_owned());
        found.push(candidate);
    }
    ranking.extend(found);
}

/// Returns true for the report of an adapter that a cable was unplugged.
fn is_unplugged(sign: &Signal) -> bool {
    let is_report = sign.mark().is_some_and(|mark| mark.role == Role::Confirmation);
    let is_class = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::NIC_LINK_DOWN);
    let is_adapter = matches!(sign.entity, Entity::Device { .. });
    sign.source == EvidenceSource::KernelLog && is_report && is_class && is_adapter
}

fn is_link_down(candidate: &CauseCandidate) -> bool {
    candidate.class.as_str() == classes::NIC_LINK_DOWN
}

/// Returns true if a rank reports a failed connection within [`RETRIES`] after a sign.
fn precedes_errors(scene: &FailureScene<'_>, loss: &Signal) -> bool {
    let is_after = |error: &Signal| {
        let is_timed = loss.timed && error.timed;
        is_timed && loss.at <= error.at && error.at.since(loss.at) <= RETRIES
    };
    let is_of_job = |error: &Signal| matches!(error.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
    let mut errors = complaints(scene).filter(|(_, error)| error.synthetic == loss.synthetic);
    errors.any(|(_, error)| is_of_job(error) && is_after(error))
}

/// Counts a bond without an active interface as a report of the link that it lost last.
pub(crate) fn merge_bonds(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.has_fault_ends {
        return;
    }
    let is_strong = |candidate: &CauseCandidate| candidate.strength >= CandidateStrength::Cause;
    for at in 0..ranking.len() {
        let bond = &ranking[at];
        let report = &scene.signs[bond.first];
        let is_bond = report.is_signed(BOND_SIGNATURE) && report.text.contains("without any active interface");
        if !is_bond || !is_strong(bond) {
            continue;
        }
        let leads = |link: &CauseCandidate| {
            let loss = &scene.signs[link.first];
            let is_timed = loss.timed && report.timed;
            let is_near = loss.at <= report.at && report.at.since(loss.at) <= POLLED;
            let is_before = if is_timed { is_near } else { link.first < bond.first };
            is_link_down(link) && is_strong(link) && is_before && same_node(loss, report)
        };
        let mut links: Vec<usize> = (0..ranking.len()).filter(|other| leads(&ranking[*other])).collect();
        links.sort_by_key(|other| ranking[*other].first);
        let Some((first, others)) = links.split_first() else {
            continue;
        };
        let name = |candidate: &CauseCandidate| scene.signs[candidate.first].field("nic").map(str::to_owned);
        let interface = name(&ranking[*first]);
        let of_same = others
            .iter()
            .filter(|other| interface.is_some() && name(&ranking[**other]) == interface);
        let merged: Vec<usize> = of_same.copied().chain([at]).collect();
        let support: Vec<usize> = merged.iter().flat_map(|other| ranking[*other].support.iter()).collect();
        for other in &merged {
            ranking[*other].strength = CandidateStrength::Symptom;
        }
        let note = || "Its bond has no active interface without it.".to_owned();
        ranking[*first].confirm(support, note);
    }
}
