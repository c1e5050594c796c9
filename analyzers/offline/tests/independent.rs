//! Folders of logs with several failures: those that nothing connects are cases of their own.

use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

/// Returns class, node and rank of each case, sorted.
fn found(cases: &[OfflineCase]) -> Vec<String> {
    let mut all: Vec<String> = cases
        .iter()
        .map(|case| match (&case.root_node, case.root_rank) {
            (Some(node), Some(rank)) => format!("{} rank {rank} {node}", case.class),
            (Some(node), None) => format!("{} {node}", case.class),
            (None, Some(rank)) => format!("{} rank {rank}", case.class),
            (None, None) => case.class.clone(),
        })
        .collect();
    all.sort();
    all
}

fn check(files: &[(&str, &str)], expected: &[&str]) {
    let cases = diagnose(files);
    let reasons: Vec<&Vec<String>> = cases.iter().map(|case| &case.reasoning).collect();
    assert_eq!(found(&cases), expected, "{files:?}\n{reasons:#?}");
}

fn says(cases: &[OfflineCase], parts: &[&str]) -> bool {
    let mut reasons = cases.iter().flat_map(|case| &case.reasoning);
    reasons.any(|reason| parts.iter().all(|part| reason.contains(part)))
}

/// Returns a kernel's line of a host at a second of the minute 07:30.
fn kernel(host: &str, second: u32, text: &str) -> String {
    format!("2026-03-09T07:30:{second:02}.000000+01:00 {host} kernel: {text}\n")
}

fn kill(host: &str, second: u32) -> String {
    let text = "Out of memory: Killed process 31007 (pretrain) total-vm:61002304kB, anon-rss:59331072kB, file-rss:0kB, \
                shmem-rss:0kB, UID:2001 pgtables:90122kB oom_score_adj:0";
    kernel(host, second, text)
}

fn lost_gpu(host: &str, second: u32) -> String {
    let text = "NVRM: Xid (PCI:0000:1b:00): 79, pid=31007, name=pretrain, GPU has fallen off the bus.";
    kernel(host, second, text)
}

fn lost_link(host: &str, second: u32) -> String {
    kernel(host, second, "mlx5_core 0000:a1:00.0 ib3: Link down")
}

fn hang(host: &str, second: u32) -> String {
    kernel(host, second, "nfs: server filer02 not responding, still trying")
}

fn error(second: u32, text: &str) -> String {
    format!("2026-03-09T07:30:{second:02}.000+01:00 {text}\n")
}

#[test]
fn a_kill_for_memory_does_not_follow_from_another_node() {
    for second in [11, 19] {
        let others = [
            ("gpu-fallen-off-bus tcn3", lost_gpu("tcn3", 15)),
            ("host-oom-kill tcn3", kill("tcn3", 15)),
        ];
        for (other, text) in others {
            let killed = kill("tcn8", second);
            let mut expected = vec![other, "host-oom-kill tcn8"];
            expected.sort_unstable();
            check(&[("tcn3/kern.log", &text), ("tcn8/kern.log", &killed)], &expected);
        }
    }
    let cases = diagnose(&[
        ("tcn3/kern.log", &lost_gpu("tcn3", 15)),
        ("tcn8/kern.log", &kill("tcn8", 17)),
    ]);
    assert!(!says(&cases, &["reports host-oom-kill", "which follows from it"]));
    assert!(says(&cases, &["reports host-oom-kill", "which is a fault of its own"]));
}

#[test]
fn a_kill_for_memory_does_not_follow_from_an_error_of_a_program() {
    check(
        &[
            ("rank2.log", &error(15, "IndexError: list index out of range")),
            ("tcn8.kern.log", &kill("tcn8", 18)),
        ],
        &["host-oom-kill tcn8", "python-index-error rank 2"],
    );
}

/// A process that ended elsewhere takes no memory of this node.
#[test]
fn a_kill_for_memory_does_not_follow_from_a_missing_file_or_a_crash() {
    for text in [
        "FileNotFoundError: [Errno 2] No such file or directory: '/set/part-3.idx'",
        "Fatal Python error: Segmentation fault",
    ] {
        for second in [11, 18] {
            let killed = kill("tcn8", second);
            let cases = diagnose(&[("rank2.log", &error(15, text)), ("tcn8.kern.log", &killed)]);
            let nodes: Vec<String> = found(&cases);
            assert!(nodes.contains(&"host-oom-kill tcn8".to_owned()), "{cases:#?}");
            assert!(
                !says(&cases, &["reports host-oom-kill", "which follows from it"]),
                "{cases:#?}"
            );
        }
    }
}

/// A control group at its limit may be of any service.
#[test]
fn a_kill_at_the_limit_of_a_group_is_a_case_if_the_job_reports_it() {
    let killed = kernel(
        "tcn8",
        18,
        "Memory cgroup out of memory: Killed process 31007 (pretrain) total-vm:61002304kB, anon-rss:59331072kB, file-rss:0kB, \
         shmem-rss:0kB, UID:2001 pgtables:90122kB oom_score_adj:0",
    );
    let lost = lost_gpu("tcn3", 15);
    let machines = [("tcn3/kern.log", lost.as_str()), ("tcn8/kern.log", killed.as_str())];
    check(&machines, &["gpu-fallen-off-bus tcn3"]);
    let report = "srun: error: tcn8: task 12: Out Of Memory\n";
    let [one, other] = machines;
    let cases = diagnose(&[one, other, ("slurm-77.out", report)]);
    assert_eq!(cases.len(), 2, "{cases:#?}");
    assert!(!says(&cases, &["reports host-oom-kill", "which follows from it"]));
}

#[test]
fn errors_of_programs_on_other_nodes_are_cases_of_their_own() {
    let name = error(15, "NameError: name 'lr_max' is not defined");
    let memory = error(
        17,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.",
    );
    check(
        &[("tcn3/rank-1.err", &name), ("tcn8/rank-9.err", &memory)],
        &["cuda-oom rank 9 tcn8", "python-name-error rank 1 tcn3"],
    );
    let call = error(16, "TypeError: expected Tensor as element 0 in argument 0, but got str");
    check(
        &[("tcn3/rank-1.err", &name), ("tcn8/rank-9.err", &call)],
        &["python-name-error rank 1 tcn3", "type-error rank 9 tcn8"],
    );
    let full = error(12, "OSError: [Errno 28] No space left on device: '/var/tmp/part-4'");
    check(
        &[("tcn3/rank-1.err", &memory), ("tcn8/rank-9.err", &full)],
        &["cuda-oom rank 1 tcn3", "disk-full"],
    );
    let lost = lost_gpu("tcn5", 12);
    check(
        &[
            ("tcn5/kern.log", &lost),
            ("tcn5/rank-1.err", ""),
            ("tcn8/rank-9.err", &name),
        ],
        &["gpu-fallen-off-bus tcn5", "python-name-error rank 9 tcn8"],
    );
}

/// One mistake fails on many ranks, and a rank that lost a peer fails in many ways.
#[test]
fn errors_that_may_have_one_reason_are_one_case() {
    let name = error(15, "NameError: name 'lr_max' is not defined");
    check(
        &[
            ("tcn3/rank-1.err", &name),
            ("tcn8/rank-9.err", &name.replace("15.000", "16.000")),
        ],
        &["python-name-error rank 1 tcn3"],
    );
    let lost = error(
        16,
        "RuntimeError: [gloo/transport/tcp/pair.cc:545] Connection closed by peer [10.9.0.3]:51044",
    );
    let after = format!("{lost}{}", error(17, "KeyError: 'worker_3'"));
    let cases = diagnose(&[("tcn3/rank-1.err", &name), ("tcn8/rank-9.err", &after)]);
    assert_eq!(cases.len(), 1, "{cases:#?}");
    let none = error(16, "TypeError: 'NoneType' object is not subscriptable");
    let cases = diagnose(&[("tcn3/rank-1.err", &name), ("tcn8/rank-9.err", &none)]);
    assert_eq!(cases.len(), 1, "{cases:#?}");
}

#[test]
fn a_lasting_fault_of_another_node_does_not_disappear() {
    for second in [11, 19] {
        let killed = kill("tcn8", 15);
        let link = lost_link("tcn3", second);
        check(
            &[("tcn3/kern.log", &link), ("tcn8/kern.log", &killed)],
            &["host-oom-kill tcn8", "nic-link-down tcn3"],
        );
        let up = format!("{link}{}", kernel("tcn3", 25, "mlx5_core 0000:a1:00.0 ib3: Link up"));
        check(
            &[("tcn3/kern.log", &up), ("tcn8/kern.log", &killed)],
            &["host-oom-kill tcn8"],
        );
        let port = |second, state| kernel("tcn3", second, &format!("infiniband mlx5_3: Port: 1 Link {state}"));
        let states = format!("{}{}", port(second, "DOWN"), port(25, "ACTIVE"));
        check(
            &[("tcn3/kern.log", &states), ("tcn8/kern.log", &killed)],
            &["host-oom-kill tcn8"],
        );
        let gpu = lost_gpu("tcn8", 15);
        let waits = hang("tcn3", second);
        check(
            &[("tcn3/kern.log", &waits), ("tcn8/kern.log", &gpu)],
            &["filesystem-hang tcn3", "gpu-fallen-off-bus tcn8"],
        );
        let answered = format!("{waits}{}", kernel("tcn3", 25, "nfs: server filer02 OK"));
        check(
            &[("tcn3/kern.log", &answered), ("tcn8/kern.log", &gpu)],
            &["gpu-fallen-off-bus tcn8"],
        );
        let raised = error(15, "NameError: name 'lr_max' is not defined");
        check(
            &[("tcn3/kern.log", &link), ("rank4.log", &raised)],
            &["nic-link-down tcn3", "python-name-error rank 4"],
        );
    }
}

/// One part that several nodes share is one case, and explains the lost connections after it.
#[test]
fn what_several_nodes_share_is_one_case() {
    let killed = kill("tcn8", 18);
    let links = [lost_link("tcn3", 11), lost_link("tcn4", 12)];
    let lost = error(
        14,
        "RuntimeError: NCCL error: remote process exited or there was a network error",
    );
    let cases = diagnose(&[
        ("tcn3/kern.log", &links[0]),
        ("tcn4/kern.log", &links[1]),
        ("tcn8/kern.log", &killed),
        ("rank5.log", &lost),
    ]);
    assert_eq!(found(&cases), ["host-oom-kill tcn8", "nic-link-down"], "{cases:#?}");
    assert!(
        says(&cases, &["reports remote-worker-lost", "which follows from it"]),
        "{cases:#?}"
    );
    let waits = [hang("tcn3", 11), hang("tcn4", 12)];
    let gpu = lost_gpu("tcn8", 18);
    let cases = diagnose(&[
        ("tcn3/kern.log", &waits[0]),
        ("tcn4/kern.log", &waits[1]),
        ("tcn8/kern.log", &gpu),
    ]);
    assert_eq!(
        found(&cases),
        ["filesystem-hang", "gpu-fallen-off-bus tcn8"],
        "{cases:#?}"
    );
    assert!(cases.iter().any(|case| case.blamed == "server filer02"), "{cases:#?}");
}

#[test]
fn each_task_that_a_scheduler_names_has_its_case() {
    let report = "srun: error: tcn3: task 1: Out Of Memory\nsrun: error: tcn8: task 6: Out Of Memory\n";
    check(
        &[("slurm-9.out", report)],
        &["host-oom-kill rank 1 tcn3", "host-oom-kill rank 6 tcn8"],
    );
}

/// A GPU reaches no server, but a machine may be one.
#[test]
fn a_server_that_does_not_answer_follows_from_its_own_machine() {
    let both = format!("{}{}", lost_gpu("tcn3", 15), kill("tcn3", 17));
    check(
        &[("tcn3/kern.log", &both)],
        &["gpu-fallen-off-bus tcn3", "host-oom-kill tcn3"],
    );
    let both = format!("{}{}", lost_gpu("tcn3", 15), hang("tcn3", 17));
    check(
        &[("tcn3/kern.log", &both)],
        &["filesystem-hang", "gpu-fallen-off-bus tcn3"],
    );
    let panic = kernel(
        "filer02",
        15,
        "Kernel panic - not syncing: Fatal exception in interrupt",
    );
    let cases = diagnose(&[("filer02/kern.log", &panic), ("tcn3/kern.log", &hang("tcn3", 17))]);
    assert!(
        !says(&cases, &["reports filesystem-hang", "a fault of its own"]),
        "{cases:#?}"
    );
}

/// Returns the report of a timeout of ten minutes at a second of the minute 07:30.
fn timeout(rank: u32, second: u32) -> String {
    format!(
        "[rank{rank}]:[E309 06:30:{second:02}.250 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation \
         timeout: WorkNCCL(SeqNum=90, OpType=REDUCE_SCATTER, NumelIn=8, NumelOut=1, Timeout(ms)=600000) ran for 600040 \
         milliseconds before timing out.\n"
    )
}

fn at_minute(text: &str, minute: u32) -> String {
    text.replace("T07:30:", &format!("T07:{minute:02}:"))
}

#[test]
fn a_wait_that_began_long_before_a_fault_does_not_follow_from_it() {
    let timeouts = format!("{}{}", timeout(4, 20), timeout(5, 20));
    for second in [15, 24] {
        for (fault, class) in [
            (lost_gpu("tcn3", second), "gpu-fallen-off-bus tcn3"),
            (hang("tcn3", second), "filesystem-hang"),
        ] {
            let files = [("tcn3/kern.log", fault.as_str()), ("job.log", timeouts.as_str())];
            let mut expected = vec![class, "nccl-timeout"];
            expected.sort_unstable();
            check(&files, &expected);
            let cases = diagnose(&files);
            assert!(
                !says(&cases, &["reports nccl-timeout", "which follows from it"]),
                "{cases:#?}"
            );
        }
    }
    let raised = error(
        12,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.",
    );
    check(
        &[("rank4.log", &timeout(4, 20)), ("rank6.log", &raised)],
        &["cuda-oom rank 6", "nccl-timeout"],
    );
}

#[test]
fn a_wait_follows_from_a_fault_near_its_start() {
    for minute in [19, 20, 21, 23] {
        let lost = at_minute(&lost_gpu("tcn3", 15), minute);
        let timeouts = format!("{}{}", timeout(4, 20), timeout(5, 20));
        check(
            &[("tcn3/kern.log", &lost), ("job.log", &timeouts)],
            &["gpu-fallen-off-bus tcn3"],
        );
    }
}

/// What a wait waited for is sought among the earlier failures.
#[test]
fn an_earlier_cause_explains_the_wait() {
    let early = at_minute(&hang("tcn9", 10), 20);
    let late = lost_gpu("tcn3", 15);
    let files = [
        ("tcn3/kern.log", late.as_str()),
        ("tcn9/kern.log", early.as_str()),
        ("job.log", &timeout(4, 20)),
    ];
    check(&files, &["filesystem-hang tcn9", "gpu-fallen-off-bus tcn3"]);
    let cases = diagnose(&files);
    let waits = cases.iter().find(|case| case.class == "filesystem-hang").unwrap();
    assert!(says(
        std::slice::from_ref(waits),
        &["reports nccl-timeout", "which follows from it"]
    ));
}
