//! Folders of logs: which signs are of one failure, and which of none.

use rankguard_faults::Catalogue;
use rankguard_model::{EvidenceSource, NodeId, Rank};
use rankguard_offline::{Incident, OfflineCase, StreamOrigin, StreamReader, conclude_each, incidents, machine_report};

/// Log of a folder.
struct Log<'a> {
    name: &'a str,
    source: EvidenceSource,
    rank: Option<u32>,
    node: Option<&'a str>,
    text: &'a str,
}

fn rank_log(rank: u32, text: &str) -> Log<'_> {
    Log {
        name: ["rank0.log", "rank1.log", "rank2.log", "rank3.log"][rank as usize],
        source: EvidenceSource::JobLog,
        rank: Some(rank),
        node: None,
        text,
    }
}

fn kernel_log<'a>(node: &'a str, text: &'a str) -> Log<'a> {
    Log {
        name: "kern.log",
        source: EvidenceSource::KernelLog,
        rank: None,
        node: Some(node),
        text,
    }
}

fn log_of(source: EvidenceSource, text: &str) -> Log<'_> {
    Log {
        name: "train.log",
        source,
        rank: None,
        node: None,
        text,
    }
}

fn read(logs: &[Log<'_>]) -> Vec<Incident> {
    let streams = logs.iter().map(|log| {
        let mut reader = StreamReader::new(StreamOrigin {
            name: log.name.to_owned(),
            source: Some(log.source),
            rank: log.rank.map(Rank),
            node: log.node.map(NodeId::from),
            ..StreamOrigin::default()
        });
        reader.push_block(log.text.as_bytes());
        reader.finish()
    });
    incidents(streams.collect())
}

fn diagnose(logs: &[Log<'_>]) -> Vec<OfflineCase> {
    let incidents = read(logs);
    let concluded = incidents
        .iter()
        .flat_map(|incident| conclude_each(incident, Catalogue::builtin()));
    concluded.collect()
}

/// Returns the classes of reports of machines that are no cases.
fn facts(logs: &[Log<'_>]) -> Vec<String> {
    let incidents = read(logs);
    let facts = incidents
        .iter()
        .filter_map(|incident| machine_report(incident, Catalogue::builtin()));
    facts.map(|fact| fact.class).collect()
}

fn classes(cases: &[OfflineCase]) -> Vec<&str> {
    cases.iter().map(|case| case.class.as_str()).collect()
}

const BUG: &str = "\
[2026-03-04 10:00:27] step 190 loss 2.41
[2026-03-04 10:00:31] Traceback (most recent call last):
[2026-03-04 10:00:31]   File \"/workspace/train.py\", line 104, in main
[2026-03-04 10:00:31]     total += metrics[\"acc\"]
[2026-03-04 10:00:31] KeyError: 'acc'
";

/// Log of a rank that waited in vain from 10:00:41.
fn waited(rank: u32, until: &str, wait: &str) -> String {
    format!(
        "[2026-03-04 10:00:27] step 190 loss 2.41\n\
         [2026-03-04 {until}] [rank{rank}]:[E304 {until}.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught \
         collective operation timeout: WorkNCCL(SeqNum=881, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, \
         Timeout(ms)={wait}000) ran for {wait}012 milliseconds before timing out.\n"
    )
}

#[test]
fn a_timeout_is_of_the_failure_at_which_its_wait_began() {
    for (until, wait) in [("10:10:41", "600"), ("10:30:41", "1800"), ("10:05:41", "300")] {
        let others = [0, 2, 3].map(|rank| waited(rank, until, wait));
        let cases = diagnose(&[
            rank_log(0, &others[0]),
            rank_log(1, BUG),
            rank_log(2, &others[1]),
            rank_log(3, &others[2]),
        ]);
        assert_eq!(classes(&cases), ["key-error"], "{until}");
        assert_eq!(cases[0].root_rank, Some(Rank(1)), "{until}");
    }
}

#[test]
fn a_timeout_whose_wait_began_long_after_a_failure_is_another() {
    let later = waited(0, "10:40:41", "600");
    let cases = diagnose(&[rank_log(0, &later), rank_log(1, BUG)]);
    assert_eq!(classes(&cases), ["key-error", "nccl-timeout"]);
}

#[test]
fn a_timeout_of_default_length_follows_from_a_lost_gpu() {
    let kernel = "[Wed Mar  4 10:00:31 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=1003, name=python3, GPU has fallen \
                  off the bus.\n";
    let waited = [0, 1].map(|rank| waited(rank, "10:10:41", "600"));
    let cases = diagnose(&[
        kernel_log("gpu-02", kernel),
        rank_log(0, &waited[0]),
        rank_log(1, &waited[1]),
    ]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus"]);
}

const FINISHED: &str = "\
[2026-03-04 01:00:00] step 100 loss 2.50
[2026-03-04 01:30:00] step 900 loss 1.90
[2026-03-04 01:31:05] Training finished.
";

#[test]
fn reports_of_machines_beside_a_run_that_ended_well_are_facts() {
    let reports = [
        (
            "Mar  4 01:00:03 gpu-03 kernel: [1200.1] mlx5_core 0000:5e:00.0 ens1f0np0: Link down\n\
             Mar  4 01:00:05 gpu-03 kernel: [1202.9] mlx5_core 0000:5e:00.0 ens1f0np0: Link up\n",
            "nic-link-down",
        ),
        (
            "Mar  4 01:10:10 gpu-03 kernel: [9000.3] Out of memory: Killed process 771 (exporter) total-vm:9123456kB, \
             anon-rss:5012345kB, file-rss:0kB, shmem-rss:0kB, UID:65534 pgtables:10123kB oom_score_adj:500\n",
            "host-oom-kill",
        ),
        (
            "Mar  4 01:10:10 gpu-03 kernel: [7.1] NVRM: Xid (PCI:0000:1b:00): 31, pid=88123, name=other, Ch 00000008, \
             intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_10000000. Fault is of type \
             FAULT_PDE ACCESS_TYPE_READ\n",
            "gpu-engine-exception",
        ),
        (
            "Mar  4 01:10:10 gpu-03 kernel: [7.1] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 \
             (channel:1 slot:0 page:0x1234 offset:0x0 grain:32 syndrome:0x0)\n",
            "host-memory-corrected-errors",
        ),
    ];
    for (kernel, class) in reports {
        let logs = [log_of(EvidenceSource::JobLog, FINISHED), kernel_log("gpu-03", kernel)];
        assert_eq!(classes(&diagnose(&logs)), [""; 0], "{class}");
        assert_eq!(facts(&logs), [class]);
    }
}

#[test]
fn a_lost_gpu_beside_a_run_that_ended_well_needs_its_repair() {
    let kernel = "Mar  4 01:10:10 gpu-03 kernel: [7.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=1003, name=python3, GPU has \
                  fallen off the bus.\n";
    let logs = [log_of(EvidenceSource::JobLog, FINISHED), kernel_log("gpu-03", kernel)];
    let cases = diagnose(&logs);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus"]);
    let last = cases[0].reasoning.last().map(String::as_str);
    assert_eq!(
        last,
        Some("The logs of the run state that it ended well, so this fault did not end it.")
    );
    assert_eq!(facts(&logs), [""; 0]);
}

#[test]
fn a_report_of_a_machine_beside_a_run_that_did_not_end_well_is_a_case() {
    let kernel = "Mar  4 01:10:10 gpu-03 kernel: [9000.3] Out of memory: Killed process 771 (python3) total-vm:9123456kB, \
                  anon-rss:5012345kB, file-rss:0kB, shmem-rss:0kB, UID:65534 pgtables:10123kB oom_score_adj:500\n";
    let open = FINISHED.replace("Training finished.", "step 910 loss 1.89");
    let failed = FINISHED.replace("Training finished.", "exiting with code 137");
    for run in [&open, &failed] {
        let logs = [log_of(EvidenceSource::JobLog, run), kernel_log("gpu-03", kernel)];
        assert!(classes(&diagnose(&logs)).contains(&"host-oom-kill"), "{run}");
        assert_eq!(facts(&logs), [""; 0], "{run}");
    }
}

#[test]
fn a_restarted_container_of_a_pod_that_succeeded_failed_nothing() {
    let pod = |phase: &str, reason: &str| {
        format!(
            "Name:         worker-3\nStatus:       {phase}\nContainers:\n  trainer:\n    State:          Terminated\n      \
             Reason:       {reason}\n  shipper:\n    State:          Running\n    Last State:     Terminated\n      \
             Reason:       OOMKilled\n      Exit Code:    137\n    Restart Count:  1\n"
        )
    };
    let told = |text: &str| {
        let cases = diagnose(&[log_of(EvidenceSource::JobLog, text)]);
        cases.first().map(|case| case.class.clone())
    };
    assert_eq!(told(&pod("Succeeded", "Completed")), None);
    for phase in ["Failed", "Running"] {
        let class = told(&pod(phase, "Error"));
        assert_eq!(class.as_deref(), Some("container-oom-kill"), "{phase}");
    }
    // Each description is of its own pod.
    let two = format!("{}\n{}", pod("Succeeded", "Completed"), pod("Running", "Error"));
    assert_eq!(told(&two).as_deref(), Some("container-oom-kill"));
}

#[test]
fn every_final_state_of_slurm_that_is_no_success_is_a_failure() {
    let states = [
        ("COMPLETED", "0:0", None),
        ("RUNNING", "0:0", None),
        ("REQUEUED", "0:0", None),
        ("FAILED", "1:0", Some("launcher-child-failed")),
        ("FAILED", "2:0", Some("launcher-child-failed")),
        ("FAILED", "0:9", Some("killed-by-signal")),
        ("FAILED", "137:0", Some("killed-by-signal")),
        ("FAILED", "0:11", Some("segfault")),
        ("FAILED", "0:6", Some("process-aborted")),
        ("BOOT_FAIL", "0:0", Some("slurm-node-fail")),
        ("CANCELLED", "0:0", Some("job-cancelled")),
        ("DEADLINE", "0:0", Some("slurm-time-limit")),
        ("NODE_FAIL", "0:0", Some("slurm-node-fail")),
        ("OUT_OF_MEMORY", "0:125", Some("host-oom-kill")),
        ("OUT_OF_ME+", "0:125", Some("host-oom-kill")),
        ("PREEMPTED", "0:0", Some("preempted")),
        ("TIMEOUT", "0:0", Some("slurm-time-limit")),
    ];
    for (state, code, class) in states {
        let table = format!(
            "JobID           JobName      State ExitCode \n------------ ---------- ---------- -------- \n\
             70             pretrain {state:>10} {code:>8} \n"
        );
        let delimited = format!("JobID|JobName|State|ExitCode\n70|pretrain|{state}|{code}\n");
        for text in [table, delimited] {
            let cases = diagnose(&[log_of(EvidenceSource::Scheduler, &text)]);
            assert_eq!(cases.first().map(|case| case.class.as_str()), class, "{text}");
        }
    }
}

#[test]
fn a_failed_job_is_not_excused_by_the_next() {
    let table = "JobID JobName State ExitCode\n70 pretrain FAILED 1:0\n71 pretrain COMPLETED 0:0\n\
                 71.0 python COMPLETED 0:0\n";
    let cases = diagnose(&[log_of(EvidenceSource::Scheduler, table)]);
    assert_eq!(classes(&cases), ["launcher-child-failed"]);
}

#[test]
fn the_end_that_a_batch_script_prints_excuses_no_exception() {
    let run = |end: &str| {
        format!(
            "[2026-03-04 10:00:12] step 140 loss 2.46\nTraceback (most recent call last):\n  File \"/workspace/a.py\", \
             line 3, in <module>\nKeyError: 'a'\n{end}\n"
        )
    };
    for end in [
        "Job finished",
        "Job finished at Wed Mar  4 10:00:52 UTC 2026",
        "Script done.",
    ] {
        let cases = diagnose(&[log_of(EvidenceSource::JobLog, &run(end))]);
        assert_eq!(classes(&cases), ["key-error"], "{end}");
    }
    let cases = diagnose(&[log_of(EvidenceSource::JobLog, &run("Job 12 succeeded"))]);
    assert_eq!(classes(&cases), [""; 0]);
}

#[test]
fn the_node_that_a_launcher_names_for_a_rank_is_blamed() {
    let mpirun = "mpirun noticed that process rank 3 with PID 2211 on node gpu-04 exited on signal 9 (Killed).\n";
    let cases = diagnose(&[log_of(EvidenceSource::Launcher, mpirun)]);
    assert_eq!(cases[0].root_rank, Some(Rank(3)));
    assert_eq!(cases[0].root_node, Some(NodeId::from("gpu-04")), "{:?}", cases[0]);
}

#[test]
fn an_exception_that_the_last_line_logs_as_an_error_is_a_weak_case() {
    let run = |last: &str| format!("[2026-03-04 10:00:12] INFO step 140 loss 2.46\n{last}\n");
    for (last, class) in [
        ("[2026-03-04 10:00:15] ERROR KeyError: 'acc'", Some("key-error")),
        (
            "2026-03-04 10:00:15,111 - train - CRITICAL - KeyError: 'acc'",
            Some("key-error"),
        ),
        ("[2026-03-04 10:00:15] INFO KeyError: 'acc'", None),
        ("[2026-03-04 10:00:15] ERROR KeyError: 'acc'\nstep 150 loss 2.45", None),
        ("[2026-03-04 10:00:15] ERROR KeyError: 'acc'\nTraining finished.", None),
    ] {
        let cases = diagnose(&[log_of(EvidenceSource::JobLog, &run(last))]);
        assert_eq!(cases.first().map(|case| case.class.as_str()), class, "{last}");
        assert!(cases.iter().all(|case| case.confidence < 0.5), "{last}");
    }
}

#[test]
fn a_lost_gpu_beside_a_bug_on_another_node_has_its_own_case() {
    for second in ["10:00:03", "10:00:51"] {
        let kernel = format!(
            "[Wed Mar  4 {second} 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=1003, name=python3, GPU has fallen off the bus.\n"
        );
        let cases = diagnose(&[kernel_log("gpu-02", &kernel), rank_log(1, BUG)]);
        assert_eq!(classes(&cases), ["key-error", "gpu-fallen-off-bus"], "{second}");
        assert_eq!(cases[1].root_node, Some(NodeId::from("gpu-02")), "{second}");
    }
}

#[test]
fn a_bug_does_not_follow_from_what_the_kernel_reports_of_storage_and_engines() {
    let lustre = "kernel: LustreError: 11-0: scratch-OST0012-osc-ffff: operation ost_write to node 10.9.0.4@o2ib failed: rc \
                  = -107";
    let engine = "kernel: NVRM: Xid (PCI:0000:1b:00): 31, pid=2003, name=other, Ch 00000008, intr 00000000. MMU Fault: \
                  ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_10000000. Fault is of type FAULT_PDE ACCESS_TYPE_READ";
    for report in [lustre, engine] {
        for second in ["10:00:03", "10:00:51"] {
            let kernel = format!("Mar  4 {second} gpu-02 {report}\n");
            let cases = diagnose(&[kernel_log("gpu-02", &kernel), rank_log(1, BUG)]);
            assert_eq!(classes(&cases), ["key-error"], "{second} {report}");
        }
    }
}

#[test]
fn the_kernel_reports_an_out_of_memory_kill_before_the_scheduler() {
    let kernel = "Mar  4 11:20:10 gpu-02 kernel: [9000.3] Memory cgroup out of memory: Killed process 1003 (python3) \
                  total-vm:912345678kB, anon-rss:501234567kB, file-rss:123456kB, shmem-rss:0kB, UID:1001 \
                  pgtables:1012345kB oom_score_adj:0\n";
    let step = "slurmstepd: error: Detected 1 oom_kill event in StepId=4411.0. Some of the step tasks have been OOM \
                Killed.\nsrun: error: gpu-02: task 5: Out Of Memory\nsrun: Terminating StepId=4411.0\nslurmstepd: error: \
                *** STEP 4411.0 ON gpu-01 CANCELLED AT 2026-03-04T11:20:15 ***\nsrun: error: gpu-01: task 0: Killed\n";
    let cases = diagnose(&[kernel_log("gpu-02", kernel), log_of(EvidenceSource::Scheduler, step)]);
    assert_eq!(classes(&cases).len(), 1, "{cases:?}");
    assert!(cases[0].class.ends_with("oom-kill"), "{cases:?}");
    assert!(
        cases[0].reasoning[0].contains("the kernel log of node gpu-02"),
        "{cases:?}"
    );
    assert_eq!(cases[0].root_rank, Some(Rank(5)), "{cases:?}");
    assert_eq!(cases[0].root_node, Some(NodeId::from("gpu-02")), "{cases:?}");
}

#[test]
fn a_timeout_without_a_stamp_ended_before_the_next_stamp() {
    let waited = "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: \
                  WorkNCCL(SeqNum=881, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600012 \
                  milliseconds before timing out.\n[2026-03-04 10:10:42] [rank0]: torch.distributed.DistBackendError: \
                  NCCL error: remote process exited or there was a network error\n";
    let cases = diagnose(&[rank_log(0, waited), rank_log(1, BUG)]);
    assert_eq!(classes(&cases), ["key-error"]);
}
