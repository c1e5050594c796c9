//! Lines that deny a fault are no evidence of it.
use rankguard_faults::SignatureMatcher;
use rankguard_model::{EvidenceSource, Role};

const SOURCES: [EvidenceSource; 4] = [
    EvidenceSource::KernelLog,
    EvidenceSource::Host,
    EvidenceSource::JobLog,
    EvidenceSource::Scheduler,
];

/// Reports of checks that found nothing.
const DENIED: [&str; 78] = [
    "dmesg: no \"fallen off the bus\" found",
    "dmesg: no line with \"fallen off the bus\"",
    "dmesg: \"fallen off the bus\" not found",
    "audit: grep -c \"CUDA out of memory\" rank0.log -> 0",
    "audit: searched for \"No space left on device\", nothing found",
    "      OOMKilled:    false",
    "The tasks have crashed. Check the task logs for an earlier error, or scheduler events (e.g. preemption, eviction) to debug further.",
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
    "INFO no CUDA out of memory since the last restart",
    "finished 400 steps without CUDA out of memory errors",
    "the run has not hit a single CUDA out of memory error",
    "rank 2 never saw a CUDA out of memory error",
    "0 CUDA out of memory errors",
    "summary: 0 CUDA out of memory errors, 0 NCCL errors",
    "CUDA out of memory: 0",
    "CUDA out of memory errors: 0",
    "CUDA out of memory errors were not seen in this run",
    "memory test ended without any CUDA out of memory error",
    "no watchdog saw a collective operation timeout, and no NCCL error",
    "Watchdog caught collective operation timeout: 0",
    "health: no NCCL remote process exited or there was a network error",
    "no rank was killed by the OOM killer",
    "no Connection reset by peer in the last hour",
    "Connection refused: 0, Connection reset by peer: 0",
    "If you see CUDA out of memory, lower the micro batch size",
    "if a CUDA out of memory error is raised, the batch size is halved",
    "In case of CUDA out of memory errors the launcher halves the batch",
    "activation checkpointing is on to avoid CUDA out of memory errors",
    "large batches may cause CUDA out of memory errors",
    "CUDA out of memory errors can be avoided by a smaller batch",
    "when you get 'No space left on device', clean the scratch folder",
    "rotation helps to prevent 'No space left on device' errors",
    "no uncorrectable ECC error was encountered by CUDA",
    "Segmentation fault: none",
    "if you see \"RuntimeError: CUDA error: an illegal memory access was encountered\", update the kernel",
    "if you get torch.OutOfMemoryError: CUDA out of memory, lower the batch size",
    "no RuntimeError: CUDA out of memory in the last hour",
];

/// Lists of possible causes, with what each of them is evidence of.
const LISTED: [(&str, &[&str]); 6] = [
    (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker \
         unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was \
         killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed \
         unexpectedly due to SIGSEGV or another unexpected error.",
        &["remote-worker-lost"],
    ),
    (
        "Engine core died. Possible reasons: CUDA out of memory, NCCL timeout, segmentation fault",
        &[],
    ),
    (
        "executor 4 is gone; it may have been killed by the OOM killer or its node may have been preempted",
        &[],
    ),
    (
        "process 12 left: this usually happens when (1) it ran into CUDA out of memory, (2) it was ended by SIGKILL.",
        &[],
    ),
    (
        "Killed by the OOM killer. Common reasons are a leak or a batch that is too large.",
        &["host-oom-kill"],
    ),
    (
        "Possible causes are a leak or a large batch. RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        &["cuda-oom"],
    ),
];

/// Faults beside a denial of another one.
const TOLD: [&str; 21] = [
    "health check: XID error 95 on 0000:3b:00.0",
    "GPU 0 Xid 79",
    "gpu-check: Xid 79 found on GPU 3, no action was taken",
    "GPU 3: Xid 79 errors: 2",
    "no response from the driver: GPU has fallen off the bus",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "Out of memory: Killed process 4242 (python3) total-vm:912kB",
    "ECC errors on GPU 0: 2 uncorrectable ECC errors",
    "GPU 0 CUDA out of memory",
    "rank 0 CUDA out of memory. Tried to allocate 2.00 GiB",
    "no answer from the store: CUDA out of memory",
    "No checkpoint was written, CUDA out of memory",
    "could not allocate a tensor: CUDA out of memory",
    "did not finish because of CUDA out of memory",
    "step 12 failed, not retrying: CUDA out of memory. Tried to allocate 20 MiB",
    "CUDA out of memory. If reserved memory is large, set max_split_size_mb to avoid fragmentation",
    "No CUDA out of memory errors before step 10. Step 11: CUDA out of memory. Tried to allocate 20.00 MiB",
    "CUDA out of memory errors: 3",
    "10 CUDA out of memory errors",
    "OSError: [Errno 28] No space left on device",
    "RuntimeError: No CUDA GPUs are available",
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

#[test]
fn a_list_of_possible_causes_is_evidence_of_none() {
    let matcher = SignatureMatcher::builtin();
    for (text, expect) in LISTED {
        let marks = matcher.marks(EvidenceSource::JobLog, text).into_iter();
        let mut found: Vec<String> = marks.map(|mark| mark.class.to_string()).collect();
        found.sort_unstable();
        found.dedup();
        found.retain(|class| class != "launcher-child-failed");
        assert_eq!(found, *expect, "{text}");
    }
}
