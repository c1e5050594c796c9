//! Lines that deny a fault are no evidence of it.
#![allow(clippy::unwrap_used, reason = "a test")]

use rankguard_faults::SignatureMatcher;
use rankguard_model::{EvidenceSource, Role};

const SOURCES: [EvidenceSource; 4] = [
    EvidenceSource::KernelLog,
    EvidenceSource::Host,
    EvidenceSource::JobLog,
    EvidenceSource::Scheduler,
];

/// Reports of checks that found nothing.
const DENIED: [&str; 42] = [
    "no Xid 79 errors",
    "health check: no Xid 79 errors in the last hour",
    "gpu-check: No XID 79 found on any GPU",
    "node gpu-07: no Xid errors found in dmesg",
    "GPU 0: Xid errors: 0",
    "Xid errors: none",
    "Xid 79: not found",
    "Xid 79: none",
    "Xid 79 errors: 0",
    "XID 79 count: 0",
    "checked for Xid 48, 63, 79: none found",
    "checked, no Xid 79 found",
    "checked, no fallen-off-bus GPU found",
    "checked, no GPU has fallen off the bus",
    "no GPU has fallen off the bus",
    "GPU has fallen off the bus: no",
    "no uncorrectable ECC errors found",
    "checked, no uncorrectable ECC error found",
    "Uncorrectable ECC errors: 0",
    "ECC check passed: no double-bit ECC errors detected",
    "no row remap failure found",
    "no pending row remaps found",
    "no NVLink errors found",
    "NVLink errors: 0",
    "checked, no NVLink error found",
    "no NVSwitch fatal errors found",
    "SXid errors: 0",
    "no SXid 12028 errors found",
    "no machine check exceptions found",
    "checked, no kernel panic found",
    "no soft lockup found",
    "no hard lockup found",
    "Kernel panics: 0",
    "checked dmesg: no hung tasks found",
    "no out of memory kills found",
    "checked, no OOM kill found",
    "OOM kills: 0",
    "no I/O errors found on nvme0n1",
    "no link flaps found",
    "no PCIe AER errors found",
    "no thermal slowdown found",
    "GPU lost: 0",
];

/// Faults beside a denial of another one.
const TOLD: [&str; 8] = [
    "health check: XID error 95 on 0000:3b:00.0",
    "GPU 0 Xid 79",
    "gpu-check: Xid 79 found on GPU 3, no action was taken",
    "GPU 3: Xid 79 errors: 2",
    "no response from the driver: GPU has fallen off the bus",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "Out of memory: Killed process 4242 (python3) total-vm:912kB",
    "ECC errors on GPU 0: 2 uncorrectable ECC errors",
];

fn roots(text: &str) -> Vec<String> {
    let matcher = SignatureMatcher::builtin();
    let marks = SOURCES.iter().flat_map(|source| matcher.marks(*source, text));
    let roots = marks.filter(|mark| mark.role != Role::Noise);
    let mut all: Vec<String> = roots
        .map(|mark| format!("{} ({})", mark.signature, mark.class))
        .collect();
    all.dedup();
    all
}

#[test]
fn a_denied_fault_is_no_evidence() {
    let wrong: Vec<String> = DENIED
        .iter()
        .filter_map(|text| Some((text, roots(text))).filter(|(_, roots)| !roots.is_empty()))
        .map(|(text, roots)| format!("{text}: {}", roots.join(", ")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_fault_beside_a_denial_is_evidence() {
    for text in TOLD {
        assert!(!roots(text).is_empty(), "{text}");
    }
}
