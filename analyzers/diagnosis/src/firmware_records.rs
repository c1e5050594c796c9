//! Records of the firmware's error source (APEI), of which the kernel prints a head and then the sections.
//!
//! The head states the severity and nothing about the part that failed. A section, or the driver's own report of the same
//! error, names the part, so the head is a report of that fault and no fault of a processor.

use std::time::Duration;

use rankguard_faults::classes;

use crate::engine::same_node;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Signature of the head of a record.
const HEAD: &str = "apei-fatal";
/// Maximum time from the head of a record to its sections and to the reports of the drivers to which the kernel passes it.
const RECORD: Duration = Duration::from_secs(2);
/// The same as a distance in signs, for logs without a comparable clock.
const BESIDE: usize = 8;

/// Counts heads of records as reports of the fault that their sections name.
pub(crate) fn merge(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.has_fault_ends {
        return;
    }
    let is_head = |index: usize| scene.signs[index].is_signed(HEAD);
    let mut at = 0;
    while at < ranking.len() {
        let heads: Vec<usize> = ranking[at].support.iter().filter(|index| is_head(*index)).collect();
        let is_of_heads = heads.len() == ranking[at].support.len() && !heads.is_empty();
        let sections = (0..ranking.len()).filter(|other| *other != at && is_of_hardware(scene, &ranking[*other]));
        let is_section = |other: &usize| {
            let first = ranking[*other].first;
            heads.iter().all(|head| is_of_record(scene, *head, first))
        };
        let section = sections.filter(is_section).min_by_key(|other| ranking[*other].first);
        if let Some(section) = section.filter(|_| is_of_heads) {
            ranking[section].support.extend(heads);
            ranking.remove(at);
        } else {
            at += 1;
        }
    }
}

/// Returns true for a fault that a section of a record can name.
fn is_of_hardware(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    let is_fault = candidate.strength == CandidateStrength::Overriding;
    let of_part = [
        classes::CPU_HARDWARE_ERROR,
        classes::HOST_MEMORY_FAULT,
        classes::PCIE_ERROR,
    ];
    is_fault && of_part.contains(&candidate.class.as_str()) && !scene.signs[candidate.first].is_signed(HEAD)
}

/// Returns true if a report belongs to the record that a head begins.
fn is_of_record(scene: &FailureScene<'_>, head: usize, report: usize) -> bool {
    let (one, other) = (&scene.signs[head], &scene.signs[report]);
    let is_near = if one.timed && other.timed {
        one.at <= other.at && other.at.since(one.at) <= RECORD
    } else {
        report - head.min(report) <= BESIDE
    };
    let is_numbered_alike = match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    head < report && is_near && is_numbered_alike && one.source == other.source && same_node(one, other)
}

/// Returns the number that the kernel gives each record: `{2}[Hardware Error]: ...`.
fn number(sign: &Signal) -> Option<&str> {
    let (_, rest) = sign.text.split_once('{')?;
    let (number, rest) = rest.split_once('}')?;
    rest.starts_with("[Hardware Error]").then_some(number)
}
