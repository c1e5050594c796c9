//! Errors of GPUs that end only one process, so that a job without that process works on.
//!
//! The hardware confines a contained error of memory (XID 94) to the process that used the memory. For other numbers the
//! vendor's immediate action is to restart the program (`RESTART_APP` in NVIDIA's XID catalog): the driver tears down the
//! channels of the process that it names, and the GPU works on. A recovery that the driver requests (XID 154), or any other
//! fault of the GPU, reaches further.

use rankguard_diagnosis::ConcludedDraft;
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{CaseFinding, ClassId, Entity, EvidenceSource, Role};

/// Outcome of a case about an error that the hardware confined to a process that is no rank of the job.
const OF_MEMORY: &str = "the error is confined to the process that used the memory, and no rank of the job had failed, so \
                         nothing was restarted";
/// Outcome of a case about an error for which the vendor recommends to restart only the program that the driver names.
const OF_PROCESS: &str = "the error ends only the process that the driver names, and no rank of the job had failed, so \
                          nothing was restarted";

/// Start of the vendor's action for an event that ends one program.
const RESTART_APP: &str = "RESTART_APP";

/// Returns the outcome for a verdict on an error that ends only one process; `None` if it may reach further.
pub(crate) fn of_verdict(concluded: &ConcludedDraft, catalogue: &Catalogue) -> Option<&'static str> {
    let verdict = &concluded.verdict;
    if is_contained(&verdict.class) {
        return Some(OF_MEMORY);
    }
    let is_first = |finding: &&CaseFinding| Some(&finding.evidence) == verdict.first_cause.as_ref();
    let first = concluded.findings.iter().find(is_first)?;
    if first.entity != verdict.blamed || !ends_named_process(first, catalogue) {
        return None;
    }
    let of_device = concluded
        .findings
        .iter()
        .filter(|finding| finding.entity == first.entity);
    let mut others = of_device.filter(|finding| finding.role != Role::Noise);
    others
        .all(|finding| is_teardown(finding) || ends_named_process(finding, catalogue))
        .then_some(OF_PROCESS)
}

/// Returns true for a finding about an error that ends only one process.
pub(crate) fn is_confined(finding: &CaseFinding, catalogue: &Catalogue) -> bool {
    is_contained(&finding.class) || ends_named_process(finding, catalogue)
}

/// Returns true for an outcome of this module.
pub(crate) fn is_outcome(why: &str) -> bool {
    [OF_MEMORY, OF_PROCESS].contains(&why)
}

fn is_contained(class: &ClassId) -> bool {
    class.as_str() == classes::GPU_ECC_CONTAINED
}

/// Returns true for an event of the driver that names a process, and for which the vendor recommends to restart the program.
fn ends_named_process(finding: &CaseFinding, catalogue: &Catalogue) -> bool {
    let is_device = finding.source == EvidenceSource::KernelLog && matches!(finding.entity, Entity::Device { .. });
    let code = xid(&finding.text).and_then(|number| catalogue.xids().get(number));
    is_device && names_process(&finding.text) && code.is_some_and(|code| code.vendor_action.starts_with(RESTART_APP))
}

/// Returns true for channels that the driver tears down after another event or the end of their process (XID 45).
fn is_teardown(finding: &CaseFinding) -> bool {
    xid(&finding.text) == Some(45) && finding.role == Role::Cascade
}

/// Returns the number in `NVRM: Xid (PCI:0000:9b:00): 39, pid=4411, name=python3, ...`.
fn xid(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("Xid (")?;
    let (_, rest) = rest.split_once("): ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Returns true if the driver names the process: `pid=4411`, not `pid='<unknown>'`.
fn names_process(text: &str) -> bool {
    let pid = text.split_once("pid=").map(|(_, rest)| rest.trim_start_matches('\''));
    pid.is_some_and(|pid| pid.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_names_number_and_process() {
        for (text, number, is_named) in [
            (
                "NVRM: Xid (PCI:0000:9b:00): 39, pid=4411, name=python3, Ch 8",
                Some(39),
                true,
            ),
            ("NVRM: Xid (PCI:0000:9b:00): 8, pid='4411', name=python3", Some(8), true),
            (
                "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>",
                Some(79),
                false,
            ),
            ("NVRM: GPU 0000:9b:00.0: RmInitAdapter failed!", None, false),
        ] {
            assert_eq!((xid(text), names_process(text)), (number, is_named), "{text}");
        }
    }
}
