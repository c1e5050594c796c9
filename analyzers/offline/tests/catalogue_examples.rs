//! Lines that the catalogue explains as a failure, each in a file of its own.

use rankguard_faults::{Catalogue, Signature, SignatureMatcher, classes, explain};
use rankguard_model::{EvidenceSource, Role};

use crate::folders::diagnose;

/// Signatures of reports that show no failure by themselves: what the hardware corrected or repeated, return codes and contexts
/// below an error that another line states, and a launcher that ends the rest of its processes.
const NO_FAILURE: [&str; 13] = [
    "aer-corrected",
    "edac-ce",
    "edac-util-corrected",
    "fabric-manager-multicast",
    "launcher-closing",
    "mce-amd-corrected",
    "nccl-returned-cuda",
    "nccl-returned-remote",
    "nccl-returned-system",
    "nccl-returned-usage",
    "pcie-replay",
    "peermem-context",
    "ras-memory-corrected",
];
/// The same, of lists of corrected errors.
const NO_FAILURE_LISTS: [&str; 1] = ["ras-list-corrected"];

/// Returns a name of a file with lines of a source to which the signature applies.
fn file_name(signature: &Signature) -> &'static str {
    let has = |source: EvidenceSource| signature.sources.contains(&source);
    if signature.sources.is_empty() || has(EvidenceSource::JobLog) {
        "job.log"
    } else if has(EvidenceSource::Scheduler) {
        "slurmctld.log"
    } else if has(EvidenceSource::KernelLog) {
        "kern.log"
    } else {
        "nvidia-smi.log"
    }
}

#[test]
fn every_line_that_is_explained_as_a_failure_is_found_in_its_file() {
    let (catalogue, matcher) = (Catalogue::builtin(), SignatureMatcher::builtin());
    let mut missed = Vec::new();
    for signature in matcher.signatures() {
        if signature.role == Role::Noise || signature.class.as_str() == classes::NONE {
            continue;
        }
        let id = signature.id.as_str();
        let cases = diagnose(&[(file_name(signature), &signature.example)]);
        let found: Vec<&str> = cases.iter().map(|case| case.class.as_str()).collect();
        let is_silent = NO_FAILURE.contains(&id) || NO_FAILURE_LISTS.contains(&id);
        if found.is_empty() != is_silent {
            missed.push(format!("{id}: {found:?}: {}", signature.example));
        }
        // Of a line with several meanings, the diagnosis may name another than the first one.
        let explained = explain(catalogue, &matcher, &signature.example);
        let is_explained = |class: &&str| explained.iter().any(|page| page.class.as_str() == *class);
        if signature.role == Role::Root && !found.iter().any(is_explained) {
            missed.push(format!(
                "{id}: explained otherwise than {found:?}: {}",
                signature.example
            ));
        }
    }
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}
