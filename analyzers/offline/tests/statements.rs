//! Sentences of a case: what a line means, which program wrote it, and how many messages there are.
use rankguard_faults::Catalogue;
use rankguard_model::EvidenceSource;
use rankguard_offline::{
    Incident, OfflineCase, StreamOrigin, StreamReader, conclude_each, incidents, is_foreign_kill, machine_report,
};

/// Reads logs with their names and sources.
fn read(logs: &[(&str, EvidenceSource, &str)]) -> Vec<Incident> {
    let streams = logs.iter().map(|(name, source, text)| {
        let mut reader = StreamReader::new(StreamOrigin {
            name: (*name).to_owned(),
            source: Some(*source),
            rank: rankguard_offline::guess::rank("/".as_ref(), name.as_ref()),
            ..StreamOrigin::default()
        });
        reader.push_block(text.as_bytes());
        reader.finish()
    });
    incidents(streams.collect())
}

fn diagnose(logs: &[(&str, EvidenceSource, &str)]) -> Vec<OfflineCase> {
    let incidents = read(logs);
    let cases = incidents
        .iter()
        .flat_map(|incident| conclude_each(incident, Catalogue::builtin()));
    cases.collect()
}

/// Returns all sentences of the first case.
fn sentences(logs: &[(&str, EvidenceSource, &str)]) -> String {
    let cases = diagnose(logs);
    cases.first().map(|case| case.reasoning.join("\n")).unwrap_or_default()
}

const JOB: EvidenceSource = EvidenceSource::JobLog;
const KERNEL: EvidenceSource = EvidenceSource::KernelLog;

#[test]
fn a_run_that_reports_no_failure_has_no_case() {
    for line in [
        "INFO no NCCL timeout and no CUDA out of memory in 400 steps",
        "INFO memory monitor: 0 CUDA out of memory errors",
        "WARNING if you see 'CUDA out of memory', lower --micro-batch",
        "INFO finished warmup without any Connection reset by peer",
    ] {
        let text = format!("2026-03-04 10:00:00 step 10 loss 2.1\n2026-03-04 10:00:05 {line}\n");
        let cases = diagnose(&[("train.log", JOB, &text)]);
        assert!(cases.is_empty(), "{line}: {cases:?}");
    }
}

#[test]
fn one_line_is_one_message_however_many_signatures_it_has() {
    let kernel = "2026-03-04T10:00:00Z n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus.\n";
    let rank = "2026-03-04 10:00:01 RuntimeError: CUDA error: unspecified launch failure\n";
    let text = sentences(&[("kern.log", KERNEL, kernel), ("rank3.log", JOB, rank)]);
    assert!(
        text.contains("the log of rank 3 reports cuda-launch-failure, which"),
        "{text}"
    );
    let lost = "2026-03-04 10:00:02 RuntimeError: NCCL error: remote process exited or there was a network error\n";
    let text = sentences(&[
        ("kern.log", KERNEL, kernel),
        ("rank1.log", JOB, lost),
        ("rank2.log", JOB, lost),
    ]);
    assert!(text.contains("the first of 2 messages from several ranks"), "{text}");
}

#[test]
fn logs_that_are_read_later_do_not_show_that_all_ranks_live() {
    let kernel = "2026-03-04T10:00:00Z n1 kernel: NVRM: Xid (PCI:0000:3b:00): 95, pid=7, name=python, Uncontained\n";
    let rank = "2026-03-04 10:00:01 RuntimeError: CUDA error: uncorrectable ECC error encountered\n";
    let text = sentences(&[("kern.log", KERNEL, kernel), ("rank3.log", JOB, rank)]);
    assert!(text.contains("whatever the program does"), "{text}");
    assert!(!text.contains("no rank had ended"), "{text}");
}

#[test]
fn the_writer_of_a_line_is_named_by_its_form() {
    let scheduler = EvidenceSource::Scheduler;
    let labelled = " 0: step 10\n21: OSError: [Errno 5] Input/output error: '/data/shard-7'\nsrun: error: c7: task 21: Exited with exit code 1\n";
    let text = sentences(&[("slurm-9.out", scheduler, labelled)]);
    assert!(text.contains("the log of rank 21 says \"OSError"), "{text}");
    assert!(text.contains("the scheduler reports launcher-child-failed"), "{text}");
    let events = "3m  Warning  Preempted  pod/train-1  Preempted by pod 7d1ad4ce on node pool-7\n";
    let text = sentences(&[("events.txt", JOB, events)]);
    assert!(text.contains("Kubernetes says"), "{text}");
    let controller = "[2026-03-04T10:00:20.101] error: Nodes c7 not responding\n";
    let text = sentences(&[("slurmctld.log", JOB, controller)]);
    assert!(text.contains("the scheduler says"), "{text}");
    let kubelet = "E0304 10:00:00.000000    1300 kubelet.go:2412] \"Skipping pod synchronization\" err=\"PLEG is not healthy: pleg was last seen active 4m1s ago; threshold is 3m0s\"\n";
    let cases = diagnose(&[("kubelet.log", scheduler, kubelet)]);
    let text = cases[0].reasoning.join("\n");
    assert!(
        text.contains("the kubelet says") && !text.contains("the scheduler"),
        "{text}"
    );
    let table = "9|pretrain|TIMEOUT|0:0|c7\n";
    let text = sentences(&[("sacct", JOB, table)]);
    assert!(text.contains("the scheduler says"), "{text}");
}

#[test]
fn a_killed_process_is_no_report_of_an_exhausted_host() {
    let launcher = EvidenceSource::Launcher;
    let kernel = "2026-03-04T10:00:00Z n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus.\n";
    let torchrun = "E0304 10:00:03.000000 12 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 2 (pid: 22) of binary: /usr/bin/python3\n";
    let text = sentences(&[("kern.log", KERNEL, kernel), ("torchrun.log", launcher, torchrun)]);
    assert!(text.contains("the launcher reports killed-by-signal"), "{text}");
    assert!(!text.contains("reports host-oom-kill"), "{text}");
}

const EXPORTER: &str = "2026-03-04T09:00:00Z n4 kernel: Memory cgroup out of memory: Killed process 411 (exporter) total-vm:12kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:65534 pgtables:5kB oom_score_adj:999\n";
const BUG: &str = "[2026-03-04 10:00:27] step 190 loss 2.41\n[2026-03-04 10:00:31] Traceback (most recent call last):\n[2026-03-04 10:00:31]   File \"/workspace/train.py\", line 104, in main\n[2026-03-04 10:00:31]     total += metrics[\"acc\"]\n[2026-03-04 10:00:31] KeyError: 'acc'\n";

#[test]
fn the_limit_of_a_memory_cgroup_blames_the_node_that_reports_it() {
    let logs = [("kern.log", KERNEL, EXPORTER)];
    let cases = diagnose(&logs);
    assert_eq!(cases[0].blamed, "node n4", "{cases:?}");
    let text = cases[0].reasoning.join("\n");
    assert!(
        text.contains("limit of a memory cgroup") && !text.contains("name no machine"),
        "{text}"
    );
    assert!(is_foreign_kill(&read(&logs)[0]));
    assert!(!is_foreign_kill(&read(&[("train.log", JOB, BUG)])[0]));
}

#[test]
fn a_kill_of_another_process_does_not_explain_the_error_of_a_program() {
    let beside = EXPORTER.replace("09:00:00Z", "10:00:03Z");
    let cases = diagnose(&[("kern.log", KERNEL, &beside), ("train.log", JOB, BUG)]);
    assert_eq!(cases[0].class, "key-error", "{cases:?}");
}

#[test]
fn corrected_errors_are_facts_and_no_cases() {
    let corrected = "Mar  4 10:00:01 n4 kernel: [81.1] pcieport 0000:00:1c.0: AER: Corrected error message received from 0000:02:00.0\nMar  4 10:00:20 n4 kernel: [99.1] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x3c1aa0 offset:0x180 grain:32 syndrome:0x0)\n";
    let logs = [("kern.log", KERNEL, corrected)];
    assert!(diagnose(&logs).is_empty());
    let facts: Vec<String> = read(&logs)
        .iter()
        .filter_map(|incident| machine_report(incident, Catalogue::builtin()))
        .map(|fact| fact.to_string())
        .collect();
    assert!(facts[0].contains("the hardware corrected the error"), "{facts:?}");
    let cases = diagnose(&[("kern.log", KERNEL, corrected), ("train.log", JOB, BUG)]);
    assert_eq!(cases.len(), 1, "{cases:?}");
    assert_eq!(cases[0].class, "key-error");
    let text = cases[0].reasoning.join("\n");
    assert!(!text.contains("corrected-errors"), "{text}");
}

#[test]
fn a_port_that_the_subnet_manager_names_is_blamed() {
    let log = "May 06 10:10:10 112233 [A1B2C700] 0x02 -> osm_spst_rcv_process: Switch 0x98039b0300aabbcc leaf-7 port 31(leaf-7) changed state from ACTIVE to DOWN\n";
    let cases = diagnose(&[("opensm.log", JOB, log)]);
    assert_eq!(cases[0].blamed, "port 31 of switch leaf-7", "{cases:?}");
    let text = cases[0].reasoning.join("\n");
    assert!(
        text.contains("the subnet manager says") && text.contains("The blame is on port 31 of switch leaf-7"),
        "{text}"
    );
}

#[test]
fn a_daemon_that_ends_processes_is_not_the_kernel() {
    for line in [
        "Mar  4 10:00:10 n4 systemd-oomd[811]: Killed /user.slice/pretrain.scope due to memory used (9871204352) / total (9988313088) and swap used (0) / total (0) being more than 90.00%\n",
        "Mar  4 10:00:10 n4 earlyoom[77]: sending SIGKILL to process 4242 uid 1000 \"pretrain\": badness 801, VmRSS 71003 MiB\n",
    ] {
        let text = sentences(&[("n4.journal", KERNEL, line)]);
        assert!(text.contains("a daemon of the machine ended a process"), "{text}");
        assert!(!text.contains("the kernel ended"), "{text}");
    }
    let kernel = "Mar  4 10:00:10 n4 kernel: Out of memory: Killed process 4242 (pretrain) total-vm:12kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:5kB oom_score_adj:0\n";
    let text = sentences(&[("n4.journal", KERNEL, kernel)]);
    assert!(text.contains("the kernel ended a process"), "{text}");
}

#[test]
fn a_gpu_of_amd_is_blamed_for_its_memory_and_reports_nothing_of_cuda() {
    let memory = "2026-03-04T10:00:00Z m4 kernel: amdgpu 0000:26:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block\n";
    let cases = diagnose(&[("m4.kern.log", KERNEL, memory)]);
    assert_eq!(cases[0].blamed, "gpu 0000:26:00 of node m4", "{cases:?}");
    let fault = "2026-03-04T10:00:00Z m4 kernel: amdgpu 0000:26:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32771, for process python pid 611 thread python pid 611)\n";
    let rank = "Memory access fault by GPU node-2 (Agent handle: 0x7f01) on address 0x7f12ff000. Reason: Page not present or supervisor privilege.\n";
    let text = sentences(&[("m4.kern.log", KERNEL, fault), ("rank2.log", JOB, rank)]);
    assert!(
        text.contains("reports the same fault itself") && !text.contains("CUDA's"),
        "{text}"
    );
}

#[test]
fn a_launch_failure_that_a_collective_library_reports_is_the_programs() {
    for vendor in ["HIP failure", "Cuda failure 719"] {
        let log = format!("m4:61:90 [1] /src/enqueue.cc:88 NCCL WARN {vendor} 'unspecified launch failure'\n");
        let cases = diagnose(&[("rank1.log", JOB, &log)]);
        assert_eq!(cases[0].class, "cuda-launch-failure", "{log}");
    }
}

#[test]
fn a_lost_supply_ends_no_ranks_by_itself() {
    let log = "1 | 03/04/2026 | 10:00:10 | Power Supply PSU2 | Power Supply AC lost | Asserted\n";
    let text = sentences(&[("sel.txt", JOB, log)]);
    assert!(!text.contains("whatever the program does"), "{text}");
}
