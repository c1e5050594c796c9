//! Folders of logs: the order of cause and consequence between ranks, machines and services.

use rankguard_model::{NodeId, Rank};
use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

fn classes(cases: &[OfflineCase]) -> Vec<&str> {
    cases.iter().map(|case| case.class.as_str()).collect()
}

/// Returns true if a line of the reasoning has all parts.
fn has_reason(case: &OfflineCase, parts: &[&str]) -> bool {
    let mut reasons = case.reasoning.iter();
    reasons.any(|reason| parts.iter().all(|part| reason.contains(part)))
}

const NCCL_LOST: &str = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2005, remote process \
                         exited or there was a network error, NCCL version 2.21.5";
const GLOO_LOST: &str = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer \
                         [10.9.0.3]:51044";

const MPI_LOST: &str = "[n2:111] *** MPI_ERR_PROC_FAILED: Process Failure";

fn traceback(exception: &str) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"/srv/fit.py\", line 12, in step\n    check(batch)\n{exception}\n"
    )
}

#[test]
fn lost_connections_follow_from_any_exception_of_a_peer() {
    let exceptions = [
        ("AssertionError: negative loss", "assertion-error"),
        (
            "fit.errors.VocabularyMismatchError: 50257 tokens, 50304 rows",
            "uncaught-exception",
        ),
        (
            "RuntimeError: optimizer state of layer 3 is stale",
            "uncaught-exception",
        ),
        ("KeyError: 'f1'", "key-error"),
    ];
    for (exception, class) in exceptions {
        for lost in [NCCL_LOST, GLOO_LOST, MPI_LOST] {
            let peer = format!("2026-05-02 08:00:00,000 INFO step 7\n2026-05-02 08:00:03,000 ERROR {lost}\n");
            let unstamped = format!("2026-05-02 08:00:00,000 INFO step 7\n{}", traceback(exception));
            let stamped = unstamped.replace("Traceback", "2026-05-02 08:00:01,000 ERROR uncaught\nTraceback");
            // Without a stamp the order is known by the meaning of the reports only.
            for (raised, relation) in [(unstamped, "may follow from it"), (stamped, "follows from it")] {
                let cases = diagnose(&[
                    ("rank0.log", &peer),
                    ("rank1.log", &raised),
                    ("rank2.log", &peer),
                    ("rank3.log", &peer),
                ]);
                assert_eq!(classes(&cases), [class], "{exception} {lost}");
                assert_eq!(cases[0].root_rank, Some(Rank(1)), "{exception} {lost}");
                let follows = ["reports remote-worker-lost", relation];
                assert!(has_reason(&cases[0], &follows), "{:?}", cases[0].reasoning);
            }
        }
    }
}

#[test]
fn an_exception_about_a_connection_is_a_consequence() {
    let peer = format!("2026-05-02 08:00:03,000 ERROR {NCCL_LOST}\n");
    let of_peer = [
        "",
        "TrainingError: lost connection to peer 3",
        "torch.distributed.DistStoreError: no key",
    ];
    for exception in of_peer {
        let exception = if exception.is_empty() { GLOO_LOST } else { exception };
        let cases = diagnose(&[
            ("rank0.log", &traceback(exception)),
            ("rank1.log", &peer),
            ("rank2.log", &peer),
        ]);
        assert_ne!(cases[0].class, "uncaught-exception", "{exception}");
    }
    // What a rank raised long after its peers lost their connections explains them no more.
    let late = traceback("fit.ServeError: no batch left");
    let late = format!("2026-05-02 08:00:30,000 ERROR uncaught\n{late}");
    let cases = diagnose(&[("rank0.log", &late), ("rank1.log", &peer), ("rank2.log", &peer)]);
    assert_eq!(classes(&cases), ["remote-worker-lost"]);
}

#[test]
fn a_lost_link_that_a_peer_reports_follows_from_the_exception() {
    let link = "2026-05-02 08:00:04,000 ERROR NET/IB: Got completion from peer 10.4.0.9<41111> with status=12 opcode=0 \
                len=0 vendor err 129 (Recv) hca mlx5_1\n";
    let raised = format!(
        "2026-05-02 08:00:01,000 ERROR uncaught\n{}",
        traceback("fit.LoaderError: shard 4 is short")
    );
    let cases = diagnose(&[("rank0.log", link), ("rank1.log", &raised)]);
    assert_eq!(classes(&cases), ["uncaught-exception"]);
    // The other way round the link failed first.
    let cases = diagnose(&[
        ("rank0.log", &link.replace("08:00:04", "07:59:40")),
        ("rank1.log", &raised),
    ]);
    assert_eq!(classes(&cases), ["ib-rdma-error"]);
}

const SERVICES: [&str; 12] = [
    "sshd[7]: fatal: Timeout before authentication for 10.3.3.3 port 40000",
    "snmpd[8]: Connection refused",
    "ntpd[4]: open /var/db/ntp.drift: Permission denied",
    "CRON[99]: (root) /usr/local/bin/sync.sh: No such file or directory",
    "nvidia-persistenced[5]: Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) \
     exist, and that user 0 has read and write permissions for those files.",
    "slurmd[12]: error: Node configuration differs from hardware: CPUs=32:64(hw)",
    "chef-client[3]: Could not retrieve the cookbook: Connection refused",
    "telegraf[5]: Error: dial tcp: lookup influx.local: no such host",
    "postfix/smtp[9]: connect to mx.example.org[10.2.3.4]:25: Connection timed out",
    "dockerd[3]: failed to start daemon: permission denied",
    "autofs[2]: lookup_read_map: connection refused",
    "meshcollector[2]: cannot reach http://10.0.0.5: Connection refused",
];

#[test]
fn a_service_that_speaks_of_itself_ended_no_job() {
    let failed = traceback("KeyError: 'f1'");
    let finished = "2026-05-02 08:00:00,000 step 5 loss 2.0\n2026-05-02 09:00:00,000 Training finished.\n";
    for service in SERVICES {
        let syslog = format!("May  2 07:59:55 m4 {service}\n");
        let cases = diagnose(&[("syslog", &syslog), ("train.out", &failed)]);
        assert_eq!(classes(&cases), ["key-error"], "{service}");
        assert!(!has_reason(&cases[0], &["follows from it"]), "{:?}", cases[0].reasoning);
        let cases = diagnose(&[("syslog", &syslog), ("train.out", finished)]);
        assert_eq!(classes(&cases), [""; 0], "{service}");
    }
}

#[test]
fn a_program_in_a_system_log_speaks_of_the_job() {
    let syslog = "May  2 07:59:55 m4 pretrain[44]: OSError: [Errno 28] No space left on device\n";
    assert_eq!(classes(&diagnose(&[("syslog", syslog)])), ["disk-full"]);
    let syslog =
        "May  2 07:59:55 m4 llama[44]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    assert_eq!(classes(&diagnose(&[("syslog", syslog)])), ["cuda-oom"]);
    // A service reports a fault of what the job uses.
    let smart = "May  2 07:59:55 m4 smartd[90]: Device: /dev/sda [SAT], FAILED SMART self-check. BACK UP DATA NOW!\n";
    assert_eq!(classes(&diagnose(&[("syslog", smart)])), ["local-disk-fault"]);
}

fn xid(second: &str, node: &str, number: u32) -> String {
    format!(
        "2026-05-02T{second}.000000+00:00 {node} kernel: NVRM: Xid (PCI:0000:1b:00): {number}, pid=7, name=python3, it \
         failed\n"
    )
}

const LAUNCH: &str = "2026-05-02 08:00:02,000 [rank8]: RuntimeError: CUDA error: unspecified launch failure\n";

#[test]
fn a_second_kernel_log_does_not_hide_the_fault_of_a_device() {
    let lost = format!("2026-05-02 08:00:03,000 {NCCL_LOST}\n");
    let quiet = "2026-05-02T08:00:30.000000+00:00 c1 kernel: eth0: renamed\n";
    let fault = xid("08:00:00", "c2", 79);
    let cases = diagnose(&[
        ("c1.kern.log", quiet),
        ("c2.kern.log", &fault),
        ("rank0.log", &lost),
        ("rank8.log", LAUNCH),
    ]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus"]);
    assert_eq!(cases[0].root_node, Some(NodeId::from("c2")));
    assert_eq!(cases[0].root_rank, Some(Rank(8)));
}

#[test]
fn a_folder_of_a_machine_places_its_ranks() {
    let lost = format!("2026-05-02 08:00:07,000 {NCCL_LOST}\n");
    let fault = xid("08:00:00", "c2", 48);
    let ended = format!("{}{}", xid("08:00:08", "c1", 45), xid("08:00:08", "c1", 43));
    let cases = diagnose(&[
        ("c1/kern.log", &ended),
        ("c1/rank0.log", &lost),
        ("c2/kern.log", &fault),
        ("c2/rank8.log", LAUNCH),
    ]);
    assert_eq!(classes(&cases), ["gpu-ecc-uncorrectable"]);
    // A kernel log without a host is of the machine with the rank that reports the same.
    let unnamed = "[Sat May  2 08:00:00 2026] NVRM: Xid (PCI:0000:1b:00): 48, pid=7, name=python3, it failed\n";
    let double = "2026-05-02 08:00:02,000 [rank8]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n";
    let cases = diagnose(&[("dmesg.txt", unnamed), ("node-7/rank8.log", double)]);
    assert_eq!(classes(&cases), ["gpu-ecc-uncorrectable"]);
    assert_eq!(cases[0].blamed, "gpu 0000:1b:00 of node node-7");
    // A fault of another machine is a case of its own, also if it came before.
    let other = xid("07:59:57", "c1", 48);
    let fault = xid("08:00:00", "c2", 79);
    let cases = diagnose(&[
        ("c1/kern.log", &other),
        ("c2/kern.log", &fault),
        ("c2/rank8.log", LAUNCH),
    ]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus", "gpu-ecc-uncorrectable"]);
    assert_eq!(cases[0].root_node, Some(NodeId::from("c2")));
}

#[test]
fn the_only_fault_before_a_device_error_is_its_cause() {
    let stamp = |second: u32| format!("[Sat May  2 08:00:{second:02} 2026] ");
    let xid = "NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=python3, GPU has fallen off the bus.\n";
    let fault = format!("{}{xid}", stamp(0));
    let oom = "Out of memory: Killed process 77 (java) total-vm:1kB, anon-rss:1kB\n";
    let other = format!("{}{oom}", stamp(1));
    let cases = diagnose(&[("dmesg-a.txt", &fault), ("dmesg-b.txt", &other), ("rank8.log", LAUNCH)]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus", "host-oom-kill"]);
    // With two, it is unknown which machine the rank ran on.
    let cases = diagnose(&[("dmesg-a.txt", &fault), ("dmesg-b.txt", &fault), ("rank8.log", LAUNCH)]);
    assert_eq!(cases.len(), 3, "{:?}", classes(&cases));
}

#[test]
fn stamps_of_pytorch_order_the_reports_of_a_rank() {
    let nccl = "[rank0]:[E502 08:00:03.018811902 ProcessGroupNCCL.cpp:542] [Rank 0] Collective WorkNCCL(SeqNum=9, \
                OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) raised the following async exception: NCCL \
                error: remote process exited or there was a network error, NCCL version 2.21.5\nLast error:\nNET/IB: Got \
                completion from peer 10.4.0.9<41111> with status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_1\n";
    let fault = xid("08:00:00", "gpu-a2", 79);
    let launch = traceback("RuntimeError: CUDA error: unspecified launch failure");
    let cases = diagnose(&[
        ("gpu-a1/rank0.log", nccl),
        ("gpu-a2/kern.log", &fault),
        ("gpu-a2/rank9.log", &launch),
    ]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus"]);
    assert!(
        has_reason(&cases[0], &["3.0 s later", "ib-rdma-error", "follows from it"]),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn a_traceback_below_a_logged_error_is_of_its_time() {
    let log = |level: &str| {
        format!(
            "2026-05-02 08:00:01,000 {level} step 7\n{}",
            traceback("KeyError: 'f1'")
        )
    };
    let cases = diagnose(&[("train.log", &log("ERROR"))]);
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-05-02T08:00:01.000Z"));
    // Any other line was written at an unknown time before.
    assert_eq!(diagnose(&[("train.log", &log("INFO"))])[0].first_at, None);
}

#[test]
fn an_exception_of_the_driver_and_the_error_that_it_is_are_one_case() {
    let dmesg = "[ 5021.120000] NVRM: Xid (PCI:0000:1b:00): 31, pid=4011, name=python3, Ch 00000010, intr 00000000. MMU \
                 Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f11_a0000000. Fault is of type FAULT_PDE \
                 ACCESS_TYPE_VIRT_READ\n";
    let error = traceback("RuntimeError: CUDA error: an illegal memory access was encountered");
    for error in [
        error.clone(),
        format!("2026-05-02 08:00:01,000 ERROR uncaught\n{error}"),
    ] {
        let cases = diagnose(&[("dmesg", dmesg), ("train.err", &error)]);
        assert_eq!(classes(&cases), ["cuda-illegal-memory-access"], "{error}");
    }
    // The ring of the kernel holds older faults as well.
    let older = format!("{}{dmesg}", dmesg.replace("5021.", "21.").replace("1b:00", "2b:00"));
    let cases = diagnose(&[("dmesg", &older), ("train.err", &error)]);
    assert_eq!(classes(&cases), ["cuda-illegal-memory-access", "gpu-engine-exception"]);
    let cases = diagnose(&[("dmesg", dmesg), ("train.err", &traceback("KeyError: 'f1'"))]);
    assert_eq!(classes(&cases), ["key-error", "gpu-engine-exception"]);
}

#[test]
fn stamps_of_pdsh_event_logs_and_journals_are_read() {
    let pdsh = "k7: [2026-05-02 08:00:04,100] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', \
                'fit.py', '--local_rank=6'] exits with return code = -6\n";
    let cases = diagnose(&[("ds.log", pdsh)]);
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-05-02T08:00:04.100Z"));
    let record = "7 | 05/02/2026 | 08:00:00 | Power Supply PSU1 | Power Supply AC lost | Asserted\n";
    let cases = diagnose(&[("sel.txt", record)]);
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-05-02T08:00:00.000Z"));
    let journal = "{\"_HOSTNAME\":\"p8\",\"MESSAGE\":\"NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python3, GPU has \
                   fallen off the bus.\",\"SYSLOG_IDENTIFIER\":\"kernel\",\"PRIORITY\":\"3\",\"_TAGS\":[\"a\",\"b\"],\
                   \"__REALTIME_TIMESTAMP\":\"1777708800000000\"}\n";
    let cases = diagnose(&[("p8.json", journal), ("rank8.log", LAUNCH)]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus"]);
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-05-02T08:00:00.000Z"));
    assert_eq!(cases[0].root_node, Some(NodeId::from("p8")));
}

#[test]
fn a_controller_and_its_namespace_are_one_disk() {
    let line = |second: &str, text: &str| format!("2026-05-02T08:{second}.000000+00:00 q2 kernel: {text}\n");
    let kernel = [
        line("00:00", "nvme nvme3: I/O 77 QID 3 timeout, aborting"),
        line("00:31", "nvme nvme3: I/O 77 QID 3 timeout, reset controller"),
        line("01:02", "nvme nvme3: Device not ready; aborting reset, CSTS=0x1"),
        line(
            "01:03",
            "blk_update_request: I/O error, dev nvme3n1, sector 4096 op 0x1:(WRITE) flags 0x800 phys_seg 1",
        ),
        line("01:03", "EXT4-fs (nvme3n1p1): Remounting filesystem read-only"),
    ]
    .concat();
    let raised = traceback("OSError: [Errno 30] Read-only file system: '/scratch/s.pt'");
    let raised = format!("2026-05-02 08:01:04,000 ERROR cannot save\n{raised}");
    let cases = diagnose(&[("kern.log", &kernel), ("train.log", &raised)]);
    assert_eq!(classes(&cases), ["local-disk-fault"]);
    assert!(
        !has_reason(&cases[0], &["does not explain it"]),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn an_evicted_client_of_lustre_precedes_the_failed_read() {
    let line = |second: &str, text: &str| format!("May  2 08:00:{second} w3 kernel: {text}\n");
    let kernel = [
        line(
            "00",
            "Lustre: work-OST0003-osc-ffff88: Connection to work-OST0003 (at 10.8.8.3@o2ib) was lost; in progress \
             operations using this service will wait for recovery to complete",
        ),
        line(
            "40",
            "LustreError: 167-0: work-OST0003-osc-ffff88: This client was evicted by work-OST0003; in progress \
             operations using this service will fail.",
        ),
    ]
    .concat();
    let raised = traceback("OSError: [Errno 5] Input/output error");
    for raised in [raised.clone(), format!("2026-05-02 08:00:42,000 ERROR read\n{raised}")] {
        let cases = diagnose(&[("w3.messages", &kernel), ("job.out", &raised)]);
        assert_eq!(cases.len(), 1, "{:?}", classes(&cases));
        assert!(
            ["filesystem-hang", "storage-io-error"].contains(&cases[0].class.as_str()),
            "{}",
            cases[0].class
        );
        assert!(
            cases[0].reasoning[0].contains("the kernel log of node w3 says"),
            "{:?}",
            cases[0].reasoning
        );
        assert!(
            !has_reason(&cases[0], &["resource-contention"]),
            "{:?}",
            cases[0].reasoning
        );
    }
}

#[test]
fn no_fault_of_a_machine_explains_an_exception_of_the_program() {
    let xid31 = "NVRM: Xid (PCI:0000:1b:00): 31, pid=9001, name=other, Ch 00000008, intr 00000000. MMU Fault: ENGINE \
                 GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_10000000. Fault is of type FAULT_PDE ACCESS_TYPE_READ";
    let lustre =
        "LustreError: 11-0: work-OST0012-osc-ffff: operation ost_write to node 10.9.0.4@o2ib failed: rc = -107";
    for exception in ["AssertionError: negative loss", "fit.DataIntegrityError: sha mismatch"] {
        for report in [xid31, lustre] {
            let kernel = format!("May  2 08:00:00 m4 kernel: {report}\n");
            let raised = format!("2026-05-02 08:00:05,000 ERROR uncaught\n{}", traceback(exception));
            let cases = diagnose(&[("kern.log", &kernel), ("rank0.log", &raised)]);
            assert!(
                ["assertion-error", "uncaught-exception"].contains(&cases[0].class.as_str()),
                "{cases:?}"
            );
            assert!(!has_reason(&cases[0], &["follows from it"]), "{:?}", cases[0].reasoning);
        }
    }
}

#[test]
fn a_step_that_ends_after_a_task_crashed_was_not_cancelled_from_outside() {
    let end = "srun: Terminating StepId=4.0\n\
               slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-03-04T08:00:00 ***\n\
               srun: error: n1: tasks 0-7: Terminated\n";
    for (report, class) in [
        ("srun: error: n3: task 12: Segmentation fault (core dumped)", "segfault"),
        ("srun: error: n3: task 12: Aborted (core dumped)", "process-aborted"),
        ("srun: error: n3: task 12: Killed", "killed-by-signal"),
    ] {
        let cases = diagnose(&[("slurm-4.out", &format!("{report}\n{end}"))]);
        assert_eq!(classes(&cases), [class], "{report}");
        assert_eq!(cases[0].root_rank, Some(Rank(12)), "{report}");
        assert!(
            !has_reason(&cases[0], &["cancelled from outside"]),
            "{:?}",
            cases[0].reasoning
        );
    }
    let cancelled = "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-03-04T08:00:00 ***\n\
                     srun: error: n1: task 3: Segmentation fault (core dumped)\n";
    assert_eq!(classes(&diagnose(&[("slurm-4.out", cancelled)])), ["job-cancelled"]);
}

#[test]
fn a_traceback_takes_no_time_from_an_earlier_warning() {
    let raised = traceback("KeyError: 'label'");
    let failed = "E0304 08:20:01.002000 1401 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) \
                  local_rank: 1 (pid: 1413) of binary: /usr/bin/python3\n";
    for above in [
        "W0304 08:00:00.000000 1401 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each \
         process to be 1 in default\n",
        "2026-03-04 08:00:00 WARNING tokenizer is slow\nstep 1\nstep 2000\n",
        "2026-03-04 08:00:00 ERROR retry of the upload\nstep 1\nstep 2000\n",
    ] {
        let cases = diagnose(&[("slurm-1.out", &format!("{above}{raised}{failed}"))]);
        assert_eq!(classes(&cases), ["key-error"], "{above}");
        let is_early = cases[0].first_at.as_deref().is_some_and(|at| at.contains("T08:00:00"));
        assert!(!is_early, "{above}: {:?}", cases[0].first_at);
    }
    let gave_up = "[W304 08:30:00.000000000 socket.cpp:752] [c10d] The client socket has failed to connect to [n1]:29500 (errno: \
                   110 - Connection timed out).\ntorch.distributed.DistNetworkError: The client socket has timed out after \
                   1800000ms while trying to connect to (n1, 29500).\n";
    let taken = "[E304 08:00:00.100000000 socket.cpp:803] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 \
                 - Address already in use).\n";
    let stamp = "2026-03-04 07:59:59 INFO start\n";
    let cases = diagnose(&[
        ("rank0.log", &format!("{stamp}{taken}")),
        ("rank1.log", &format!("{stamp}{gave_up}")),
    ]);
    assert_eq!(classes(&cases), ["port-in-use"]);
    let beside = format!("2026-03-04 08:00:00 ERROR training failed\n{raised}");
    let cases = diagnose(&[("slurm-1.out", &beside)]);
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-03-04T08:00:00.000Z"));
}

#[test]
fn the_summary_of_a_launcher_dates_the_last_error_of_its_rank() {
    let log = format!(
        "{}torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nRoot Cause (first observed \
         failure):\n[0]:\n  time      : 2026-03-04_08:00:01\n  host      : n2\n  rank      : 5 (local_rank: 1)\n  \
         exitcode  : 1 (pid: 991)\n  error_file: <N/A>\n",
        traceback("KeyError: 'labels'")
            .lines()
            .map(|line| format!("[rank5]: {line}\n"))
            .collect::<String>()
    );
    let cases = diagnose(&[("n2.log", &log)]);
    assert_eq!(classes(&cases), ["key-error"]);
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-03-04T08:00:01.000Z"));
}

#[test]
fn a_container_that_is_not_started_again_ended_of_something_else() {
    let events = "2026-03-04T08:00:20Z   Warning   BackOff   pod/train-0   Back-off restarting failed container trainer in \
                  pod train-0_ml(1)\n";
    let log = "2026-03-04T08:00:01Z ERROR FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'\n";
    for name in ["events.log", "a.log"] {
        let cases = diagnose(&[("train-0.log", log), (name, events)]);
        assert_eq!(classes(&cases), ["data-missing"], "{name}");
    }
    assert_eq!(classes(&diagnose(&[("events.log", events)])), ["container-start-error"]);
}

#[test]
fn times_that_lines_state_in_their_text_are_read() {
    let cancelled = "slurmstepd: error: *** JOB 9 ON c3 CANCELLED AT 2026-03-04T08:00:04 DUE TO TIME LIMIT ***\n";
    let record = "{\"ts\":\"2026-03-04T08:00:04Z\",\"level\":\"error\",\"rank\":7,\"host\":\"p7\",\"msg\":\"CUDA error: an illegal memory \
                  access was encountered\"}\n";
    for (name, log) in [("slurm-9.out", cancelled), ("app.jsonl", record)] {
        let cases = diagnose(&[(name, log)]);
        assert_eq!(cases[0].first_at.as_deref(), Some("2026-03-04T08:00:04.000Z"), "{name}");
    }
    let cases = diagnose(&[("app.jsonl", record)]);
    assert_eq!(cases[0].root_rank, Some(Rank(7)));
}

#[test]
fn an_evaluation_that_states_its_exit_code_handled_its_errors() {
    let errors = "2026-03-04 08:01:00 ERROR prompt 17: ValueError: could not parse the answer\n";
    let ended = format!("{errors}2026-03-04 08:03:01 INFO evaluation finished, exit code 0\n");
    assert!(diagnose(&[("eval.log", &ended)]).is_empty());
    let failed = format!("{errors}2026-03-04 08:03:01 INFO evaluation finished, exit code 1\n");
    assert!(!diagnose(&[("eval.log", &failed)]).is_empty());
}

#[test]
fn a_watchdog_that_hangs_ends_its_process() {
    let log = "[rank3]:[F304 08:00:00.000000000 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 3] \
               Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.\n";
    assert_eq!(classes(&diagnose(&[("j.log", log)])), ["nccl-timeout"]);
}

#[test]
fn a_full_disk_is_the_cause_of_a_failed_checkpoint() {
    let log = "Traceback (most recent call last):\n  File \"/venv/lib/python3.11/site-packages/torch/serialization.py\", line \
               1220, in _save\n    zip_file.write_record(name, storage, num_bytes)\nRuntimeError: [enforce fail at \
               inline_container.cc:783] . PytorchStreamWriter failed writing file data/17: file write failed\n\nDuring \
               handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \
               \"train.py\", line 300, in <module>\n    save()\nOSError: [Errno 28] No space left on device\n";
    assert_eq!(classes(&diagnose(&[("rank0.log", log)])), ["disk-full"]);
}
