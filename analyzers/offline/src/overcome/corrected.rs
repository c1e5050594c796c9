//! Errors that the machine corrected.

use rankguard_diagnosis::Sign;
use rankguard_model::{Role, Source};

use super::silence::{NEAR, silence};
use crate::incident::{Incident, Item};
use crate::stream::Seen;

/// How the kernel announces machine checks, corrected ones too.
const ANNOUNCED: &str = "Machine check events logged";

/// Signatures of an error that was corrected and of one that was not, or comes too often, and what stands in every record that
/// has either.
const SEVERITIES: [[&str; 3]; 3] = [
    ["apei-corrected", "apei-fatal", "}[Hardware Error]"],
    ["mce-amd-corrected", "mce-amd-uncorrected", "Ext. Error Code: "],
    ["mcelog-corrected", "mcelog-serious", "This is not a software error"],
];

/// Whether nothing is told but of errors that the machine corrected, beside a program that worked or said that it was done.
pub(crate) fn only_corrected(incident: &Incident) -> bool {
    let corrected = |item: &Item| is_corrected(&item.sign);
    let means_something = |item: &&Item| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut told = incident.items.iter().filter(means_something).peekable();
    told.peek().is_some() && told.all(corrected) && incident.logs.iter().any(|log| log.worked)
}

/// An error that was corrected, or the announcement of machine checks that does not say which.
fn is_corrected(sign: &Sign) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    sign.is_signed("edac-ce") || class == "pcie-corrected-errors" || sign.text.contains(ANNOUNCED)
}

/// Turns what was corrected into noise.
pub(super) fn forgive(seen: &mut [Seen]) {
    announced(seen);
    all_corrected(seen);
}

/// The kernel announces a machine check before it says what it was: one that was corrected needs no action, as it says, and
/// one of the memory is told by its own lines.
fn announced(seen: &mut [Seen]) {
    let says_what =
        |sign: &Sign| sign.text.contains("Corrected error, no action required") || sign.is_signed("edac-ce");
    let told: Vec<u64> = seen
        .iter()
        .filter(|seen| seen.signs.iter().any(says_what))
        .map(|seen| seen.first_line)
        .collect();
    silence(seen, |seen, sign| {
        let near = |line: &u64| (seen.first_line..=seen.last_line + NEAR).contains(line);
        sign.source == Source::KernelLog && sign.text.contains(ANNOUNCED) && told.iter().any(near)
    });
}

/// The firmware and mcelog state a severity with each error that they tell of. Where all of them were corrected nothing
/// failed; where one was not, repeats of a line are held as one, and nobody knows which of them were.
fn all_corrected(seen: &mut [Seen]) {
    for [corrected, fatal, head] in SEVERITIES {
        let told = |id: &str| seen.iter().flat_map(|seen| &seen.signs).any(|sign| sign.is_signed(id));
        if told(corrected) && !told(fatal) {
            silence(seen, |_, sign| sign.text.contains(head) || sign.is_signed(corrected));
        }
    }
}
