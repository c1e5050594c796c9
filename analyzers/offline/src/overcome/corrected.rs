//! Errors that the machine corrected.

use std::borrow::Cow;

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, Role};

use super::demotion::silence;
use crate::incident::{Incident, LocatedSignal};
use crate::stream::PlacedObservation;

/// Kernel announcements of machine checks, corrected ones included.
const ANNOUNCED: [&str; 2] = ["HANDLING MCE MEMORY ERROR", "Machine check events logged"];

/// Signatures of a corrected error and of an uncorrected or too frequent one, and the text that every record of
/// either holds.
const SEVERITIES: [[&str; 3]; 3] = [
    ["apei-corrected", "apei-fatal", "}[Hardware Error]"],
    ["mce-amd-corrected", "mce-amd-uncorrected", "Ext. Error Code: "],
    ["mcelog-corrected", "mcelog-serious", "This is not a software error"],
];

/// Returns true if the incident holds only corrected errors, and a program worked or reported success.
pub(crate) fn only_corrected(incident: &Incident) -> bool {
    let corrected = |item: &LocatedSignal| is_corrected(&item.sign);
    let means_something = |item: &&LocatedSignal| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut told = incident.items.iter().filter(means_something).peekable();
    told.peek().is_some() && told.all(corrected) && incident.logs.iter().any(|log| log.worked)
}

/// Returns true if the incident holds corrected errors and nothing else that means something.
pub(crate) fn holds_only_corrected(incident: &Incident) -> bool {
    let means_something = |item: &&LocatedSignal| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut items = incident.items.iter().filter(means_something).peekable();
    items.peek().is_some() && items.all(|item| is_of_corrected_class(&item.sign))
}

/// Returns the incident without corrected errors, which neither cause nor follow from the failures beside them.
pub(crate) fn without_corrected(incident: &Incident) -> Cow<'_, Incident> {
    if !incident.items.iter().any(|item| is_of_corrected_class(&item.sign)) {
        return Cow::Borrowed(incident);
    }
    let mut others = incident.clone();
    others.items.retain(|item| !is_of_corrected_class(&item.sign));
    Cow::Owned(others)
}

/// Returns true for a record of the firmware or of mcelog about an error that was corrected.
pub(super) fn is_corrected_record(sign: &Signal) -> bool {
    SEVERITIES.iter().any(|[corrected, ..]| sign.is_signed(corrected))
}

fn is_of_corrected_class(sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    [classes::HOST_MEMORY_CORRECTED_ERRORS, classes::PCIE_CORRECTED_ERRORS].contains(&class)
}

/// Returns true for a corrected error, or an announcement of machine checks without severity.
fn is_corrected(sign: &Signal) -> bool {
    is_of_corrected_class(sign) || is_announcement(sign)
}

fn is_announcement(sign: &Signal) -> bool {
    ANNOUNCED.iter().any(|words| sign.text.contains(words))
}

/// Turns corrected errors into noise.
pub(super) fn forgive(seen: &mut [PlacedObservation]) {
    announced(seen);
    all_corrected(seen);
}

/// Maximum number of lines from the head of a record of a memory controller to the line that names the error.
const RECORD: u64 = 12;

/// Silences announcements of machine checks that later lines describe: a corrected one needs no action, by its own
/// text, and a memory error has lines of its own.
fn announced(seen: &mut [PlacedObservation]) {
    let says_what =
        |sign: &Signal| sign.text.contains("Corrected error, no action required") || sign.is_signed("edac-ce");
    let told: Vec<u64> = seen
        .iter()
        .filter(|seen| seen.signs.iter().any(says_what))
        .map(|seen| seen.first_line)
        .collect();
    // The kernel announces a check before the driver of the memory controller decodes it. Another fault in between may be the
    // announced one.
    let is_fault = |sign: &Signal| {
        let is_kernel = sign.source == EvidenceSource::KernelLog && sign.is_root_mark();
        is_kernel && !is_corrected(sign) && !says_what(sign)
    };
    let faults: Vec<u64> = seen
        .iter()
        .filter(|seen| seen.signs.iter().any(is_fault))
        .map(|seen| seen.first_line)
        .collect();
    silence(seen, |seen, sign| {
        let is_told = |line: &u64| {
            let is_near = (seen.first_line..=seen.last_line + RECORD).contains(line);
            is_near && !faults.iter().any(|fault| (seen.last_line..*line).contains(fault))
        };
        sign.source == EvidenceSource::KernelLog && is_announcement(sign) && told.iter().any(is_told)
    });
}

/// Silences firmware and mcelog records if all were corrected, because then nothing failed. If one was not, none is
/// silenced: repeats of a line are one observation, so the corrected ones are unknown.
fn all_corrected(seen: &mut [PlacedObservation]) {
    for [corrected, fatal, head] in SEVERITIES {
        let told = |id: &str| seen.iter().flat_map(|seen| &seen.signs).any(|sign| sign.is_signed(id));
        if told(corrected) && !told(fatal) {
            silence(seen, |_, sign| sign.text.contains(head) || sign.is_signed(corrected));
        }
    }
}
