//! Folders of logs: what a machine, its kernel or its scheduler reports beside the errors that follow from it.

use rankguard_model::Rank;
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

const RETRIES: &str = "NCCL WARN NET/IB : Got completion from peer 10.7.0.2<40112> with status=12 opcode=0 len=0 \
                       vendor err 129 (Send) hca mlx5_1";

#[test]
fn an_unplugged_cable_explains_the_failed_retries() {
    let losses = [
        "mlx5_core 0000:5e:00.0: Port module event: module 1, Cable unplugged",
        "infiniband mlx5_1: port 1 is DOWN",
        "mlx5_core 0000:5e:00.0 ibs3: Link down",
    ];
    for loss in losses {
        let kernel = format!("2026-05-02T08:00:02.000000+00:00 b7 kernel: {loss}\n");
        let rank = |rank: u32| {
            format!(
                "2026-05-02 08:00:00,000 INFO rank {rank} step 7\n2026-05-02 08:00:31,000 ERROR b{rank}:1:2 [0] {RETRIES}\n"
            )
        };
        let cases = diagnose(&[
            ("b7.kern.log", &kernel),
            ("rank0.log", &rank(0)),
            ("rank8.log", &rank(8)),
        ]);
        assert_eq!(classes(&cases), ["nic-link-down"], "{loss}");
        assert!(
            cases[0].blamed.starts_with("nic ") && cases[0].blamed.ends_with(" of node b7"),
            "{loss}: {}",
            cases[0].blamed
        );
        let follows = ["reports ib-rdma-error", "follows from it"];
        assert!(has_reason(&cases[0], &follows), "{loss}: {:?}", cases[0].reasoning);
    }
}

#[test]
fn a_port_without_a_cable_explains_no_other_failure() {
    // The adapter reports an empty port when its driver is loaded.
    let kernel = "2026-05-02T08:00:02.000000+00:00 b7 kernel: mlx5_core 0000:5e:00.0: Port module event: module 1, Cable \
                  unplugged\n";
    let program = "2026-05-02 08:00:00,000 INFO rank 0 step 7\n2026-05-02 08:00:31,000 ERROR rank 0 KeyError: 'f1'\n";
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank0.log", program)]);
    assert_eq!(classes(&cases), ["key-error"]);
    let late = format!("2026-05-02 08:00:00,000 INFO rank 0 step 7\n2026-05-02 08:30:31,000 ERROR {RETRIES}\n");
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank0.log", &late)]);
    assert!(classes(&cases).contains(&"ib-rdma-error"), "{:?}", classes(&cases));
}

#[test]
fn a_report_of_a_machine_does_not_follow_from_an_error_of_a_connection() {
    let kernel = "2026-05-02T08:00:02.000000+00:00 b7 kernel: mlx5_core 0000:5e:00.0: Port module event: module 1, Cable \
                  unplugged\n";
    let rank = format!("rank 0 step 7\n{RETRIES}\n");
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank0.log", &rank)]);
    let with_link = cases.iter().find(|case| has_reason(case, &["nic-link-down"])).unwrap();
    assert!(
        !has_reason(with_link, &["nic-link-down", "follows from it and"]),
        "{:?}",
        with_link.reasoning
    );
    assert!(
        has_reason(with_link, &["nic-link-down", "does not follow from it"]),
        "{:?}",
        with_link.reasoning
    );
}

#[test]
fn the_crash_of_a_named_worker_is_the_cause_of_the_exception_that_names_it() {
    let kernel = "2026-05-02T08:00:02.000000+00:00 b7 kernel: chrome[99]: segfault at 0 ip 00007f sp 00007f error 4 in \
                  libx.so[7f+1]\n2026-05-02T08:00:02.100000+00:00 b7 kernel: pt_data_worker[5311]: segfault at 7f11 ip \
                  00007f sp 00007f error 4 in libpng.so.8[7f+1]\n";
    let reports = [
        "RuntimeError: DataLoader worker (pid(s) 5310, 5311) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid 5311) is killed by signal: Segmentation fault. ",
    ];
    for report in reports {
        for stamp in ["", "2026-05-02 08:00:02,500 ERROR "] {
            let rank = format!("2026-05-02 08:00:01,000 INFO step 7\n{stamp}{report}\n");
            let cases = diagnose(&[("b7.kern.log", kernel), ("rank9.log", &rank)]);
            assert_eq!(classes(&cases), ["segfault"], "{report}");
            assert_eq!(cases[0].root_rank, Some(Rank(9)), "{report}");
            assert!(cases[0].key_lines[0].text.contains("5311"), "{:?}", cases[0].key_lines);
            let confirms = ["reports dataloader-worker-crash", "confirms it"];
            assert!(has_reason(&cases[0], &confirms), "{report}: {:?}", cases[0].reasoning);
            assert!(!has_reason(&cases[0], &["the cause itself was not seen"]), "{report}");
        }
    }
    // Another worker than the one that crashed.
    let other = "2026-05-02 08:00:02,500 ERROR RuntimeError: DataLoader worker (pid(s) 4000) exited unexpectedly\n";
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank9.log", other)]);
    assert!(!has_reason(&cases[0], &["names process"]), "{:?}", cases[0].reasoning);
}

#[test]
fn a_requested_recovery_is_no_consequence_of_a_cuda_error() {
    let actions = ["0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)"];
    for action in actions {
        let kernel = format!(
            "2026-05-02T08:00:02.000000+00:00 b7 kernel: NVRM: Xid (PCI:0000:3b:00): 154, pid='<unknown>', \
             name=<unknown>, GPU recovery action changed from 0x0 (None) to {action}\n"
        );
        for stamp in ["", "2026-05-02 08:00:03,000 ERROR "] {
            let rank = format!("2026-05-02 08:00:01,000 INFO step 7\n{stamp}RuntimeError: CUDA error: unknown error\n");
            let cases = diagnose(&[("b7.kern.log", &kernel), ("rank2.log", &rank)]);
            assert_eq!(classes(&cases), ["gpu-recovery-action"], "{action}");
            assert_eq!(cases[0].blamed, "gpu 0000:3b:00 of node b7", "{action}");
            let confirms = ["reports cuda-launch-failure", "confirms it"];
            assert!(has_reason(&cases[0], &confirms), "{action}: {:?}", cases[0].reasoning);
        }
    }
    // A program that accesses memory out of bounds comes first.
    let kernel = "2026-05-02T08:00:02.000000+00:00 b7 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch \
                  00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 faulted @ 0x7f_00000000. Fault is of type \
                  FAULT_PDE ACCESS_TYPE_READ\n2026-05-02T08:00:02.500000+00:00 b7 kernel: NVRM: Xid (PCI:0000:3b:00): \
                  154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset \
                  Required)\n";
    let rank = "2026-05-02 08:00:01,000 INFO step 7\n2026-05-02 08:00:03,000 ERROR RuntimeError: CUDA error: an illegal \
                memory access was encountered\n";
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank2.log", rank)]);
    assert_eq!(classes(&cases), ["cuda-illegal-memory-access"]);
}

#[test]
fn the_kernel_names_the_gpu_with_the_memory_error_of_a_rank() {
    let kernel = "[Sat May  2 08:00:02 2026] NVRM: Xid (PCI:0000:4e:00): 94, pid=41236, name=python3, Ch 00000008\n";
    let rank = "[rank2]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n";
    let peer = "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting \
                prematurely.\n[rank0]: Last error:\n[rank0]: socketPollConnect: connect returned Connection refused, exceeded \
                error retry count (35)\n";
    let cases = diagnose(&[("dmesg", kernel), ("rank0.err", peer), ("rank2.err", rank)]);
    assert_eq!(classes(&cases), ["gpu-ecc-contained"]);
    assert!(cases[0].blamed.contains("gpu 0000:4e:00"), "{}", cases[0].blamed);
    let confirms = ["reports gpu-ecc-uncorrectable", "confirms it"];
    assert!(has_reason(&cases[0], &confirms), "{:?}", cases[0].reasoning);
}

#[test]
fn a_fatal_error_of_the_bus_and_the_lost_gpu_are_one_failure() {
    let errors = [
        "pcieport 0000:c0:01.0: AER: Uncorrected (Fatal) error received: 0000:c0:01.0",
        "pcieport 0000:c0:01.0: DPC: containment event, status:0x1f01 source:0x0000",
        "nvidia 0000:c1:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
    ];
    let rank =
        "2026-05-02 08:00:00,000 INFO step 7\n2026-05-02 08:00:03,000 ERROR RuntimeError: CUDA error: unknown error\n";
    let lost = "NVRM: Xid (PCI:0000:c1:00): 79, pid=4410, name=python3, GPU has fallen off the bus.";
    for error in errors {
        let kernel = format!(
            "2026-05-02T08:00:02.000000+00:00 b7 kernel: {error}\n2026-05-02T08:00:02.200000+00:00 b7 kernel: {lost}\n"
        );
        let cases = diagnose(&[("b7.kern.log", &kernel), ("rank5.log", rank)]);
        assert_eq!(classes(&cases), ["pcie-error"], "{error}");
        assert_eq!(cases[0].blamed, "gpu 0000:c1:00 of node b7", "{error}");
        let confirms = ["reports gpu-fallen-off-bus", "confirms it"];
        assert!(has_reason(&cases[0], &confirms), "{error}: {:?}", cases[0].reasoning);
    }
    // A port behind which the GPU does not lie.
    let kernel = format!(
        "2026-05-02T08:00:02.000000+00:00 b7 kernel: pcieport 0000:d0:01.0: AER: Uncorrected (Fatal) error received: \
         0000:d0:01.0\n2026-05-02T08:00:02.200000+00:00 b7 kernel: {lost}\n"
    );
    let cases = diagnose(&[("b7.kern.log", &kernel), ("rank5.log", rank)]);
    assert_eq!(cases.len(), 2, "{:?}", classes(&cases));
}

#[test]
fn a_task_that_crashed_and_reports_no_lost_peer_is_the_peer_that_the_others_lost() {
    let lost = "[E ProcessGroupNCCL.cpp:542] [Rank R] Collective WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=12, \
                NumelOut=12, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process exited \
                or there was a network error";
    for how in ["Segmentation fault (core dumped)", "Bus error (core dumped)"] {
        let log = format!(
            "0: 2026-05-02 08:00:00 step 1 loss 9.4\n0: 2026-05-02 08:00:40 {}\n1: 2026-05-02 08:00:40 {}\nsrun: error: \
             b7: task 2: {how}\nsrun: Terminating StepId=91.0\nsrun: error: b6: tasks 0-1: Aborted (core dumped)\nsrun: \
             error: b7: task 3: Aborted (core dumped)\n",
            lost.replace("Rank R", "Rank 0"),
            lost.replace("Rank R", "Rank 1")
        );
        let cases = diagnose(&[("slurm-91.out", &log)]);
        assert_eq!(classes(&cases), ["segfault"], "{how}");
        assert_eq!(cases[0].root_rank, Some(Rank(2)), "{how}");
        assert_eq!(
            cases[0].root_node.as_ref().map(|node| node.as_str()),
            Some("b7"),
            "{how}"
        );
        // The scheduler's line has no stamp.
        let follows = ["reports remote-worker-lost", "may follow from it"];
        assert!(has_reason(&cases[0], &follows), "{how}: {:?}", cases[0].reasoning);
    }
    // A process that lost its peers before often crashes when it ends.
    let log = format!(
        "0: 2026-05-02 08:00:40 {}\n2: 2026-05-02 08:00:40 {}\nsrun: error: b7: task 2: Segmentation fault (core dumped)\n",
        lost.replace("Rank R", "Rank 0"),
        lost.replace("Rank R", "Rank 2")
    );
    let cases = diagnose(&[("slurm-91.out", &log)]);
    assert_eq!(classes(&cases), ["remote-worker-lost"]);
}

#[test]
fn a_pod_that_was_killed_before_its_peer_lost_it_is_the_cause() {
    let pod = |seconds: u32| {
        format!(
            "Name:         w-2\nNode:         b7/10.0.0.3\n    State:          Terminated\n      Reason:       Error\n      \
             Exit Code:    137\n      Started:      Sat, 02 May 2026 07:00:00 +0000\n      Finished:     Sat, 02 May \
             2026 08:00:{seconds:02} +0000\n"
        )
    };
    let rank = "2026-05-02 08:00:00 [rank 0] step 3 loss 2.4\n2026-05-02 08:00:09 [rank 0] RuntimeError: \
                [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:4410\n";
    let cases = diagnose(&[("w0.log", rank), ("w2.describe.txt", &pod(7))]);
    assert_eq!(classes(&cases), ["killed-by-signal"]);
    assert_eq!(cases[0].root_node.as_ref().map(|node| node.as_str()), Some("b7"));
    let follows = ["2.0 s later", "reports remote-worker-lost", "follows from it"];
    assert!(has_reason(&cases[0], &follows), "{:?}", cases[0].reasoning);
    // A pod that was killed after it is cleaned up.
    let cases = diagnose(&[("w0.log", rank), ("w2.describe.txt", &pod(20))]);
    assert_eq!(classes(&cases), ["remote-worker-lost"]);
}

#[test]
fn a_bond_without_an_interface_follows_from_the_link_of_its_last_one() {
    let links = [
        "bnxt_en 0000:31:00.0 ens1f0np0: NIC Link is Down",
        "mlx5_core 0000:31:00.0 ens1f0np0: Link down",
    ];
    let rank = "2026-05-02 08:00:00,000 INFO step 7\n2026-05-02 08:00:39,000 ERROR torch.distributed.DistNetworkError: The \
                client socket has timed out after 30000ms while trying to connect to (b7, 29500).\n";
    for link in links {
        let kernel = format!(
            "2026-05-02T08:00:02.000000+00:00 b7 kernel: {link}\n2026-05-02T08:00:02.100000+00:00 b7 kernel: bond0: (slave \
             ens1f0np0): link status definitely down, disabling slave\n2026-05-02T08:00:02.200000+00:00 b7 kernel: bond0: \
             now running without any active interface!\n"
        );
        let cases = diagnose(&[("b7.kern.log", &kernel), ("rank0.log", rank)]);
        assert_eq!(classes(&cases), ["nic-link-down"], "{link}");
        assert_eq!(cases[0].blamed, "nic ens1f0np0 of node b7", "{link}");
        assert!(
            !has_reason(&cases[0], &["does not explain it"]),
            "{link}: {:?}",
            cases[0].reasoning
        );
        assert!(
            has_reason(&cases[0], &["reports nic-fault", "confirms it"]),
            "{link}: {:?}",
            cases[0].reasoning
        );
    }
}

#[test]
fn a_reset_after_the_page_fault_of_a_rank_is_no_fault_of_the_gpu() {
    for seconds in [6, 15] {
        let kernel = format!(
            "2026-05-02T08:00:05.000000+00:00 b7 kernel: amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] no-retry page fault \
             (src_id:0 ring:24 vmid:8 pasid:32770, for process python3 pid 4410 thread python3 pid \
             4410)\n2026-05-02T08:00:{seconds:02}.000000+00:00 b7 kernel: amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n"
        );
        let rank = "2026-05-02 08:00:00 [rank 2] [pid 4410] step 3 loss 2.4\n2026-05-02 08:00:06 [rank 2] Memory access \
                    fault by GPU node-4 (Agent handle: 0x55) on address 0x7f12a000. Reason: Page not present or supervisor \
                    privilege.\n";
        let cases = diagnose(&[("b7.kern.log", &kernel), ("b7.log", rank)]);
        assert_eq!(classes(&cases), ["cuda-illegal-memory-access"], "{seconds}");
        assert_eq!(cases[0].root_rank, Some(Rank(2)), "{seconds}");
        let follows = ["reports gpu-internal-fault", "follows from it"];
        assert!(has_reason(&cases[0], &follows), "{seconds}: {:?}", cases[0].reasoning);
    }
    // A reset without a fault of a program.
    let kernel = "2026-05-02T08:00:05.000000+00:00 b7 kernel: amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n";
    let rank = "2026-05-02 08:00:06 [rank 2] RuntimeError: HIP error: unspecified launch failure\n";
    let cases = diagnose(&[("b7.kern.log", kernel), ("b7.log", rank)]);
    assert_eq!(classes(&cases), ["gpu-internal-fault"]);
}

#[test]
fn a_rank_that_never_came_found_nothing_when_it_came() {
    let waits = |rank: u32| {
        format!(
            "2026-05-02 08:00:00 rank {rank} step 300 loss 2.2\n[rank{rank}]:[E502 08:10:01.111831021 \
             ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, \
             OpType=ALLREDUCE, NumelIn=12, NumelOut=12, Timeout(ms)=600000) ran for 600020 milliseconds before timing \
             out.\n"
        )
    };
    let stuck = "2026-05-02 08:00:00 rank 2 step 300 loss 2.2\n[rank2]:[E502 08:10:02.111831021 \
                 ProcessGroupNCCL.cpp:1316] [PG ID 0 PG GUID 0(default_pg) Rank 2] Heartbeat monitor timed out! Process \
                 will be terminated after dumping debug info. workMetaList_.size()=103\n";
    let cases = diagnose(&[("rank0.log", &waits(0)), ("rank1.log", &waits(1)), ("rank2.log", stuck)]);
    assert_eq!(cases[0].root_rank, Some(Rank(2)));
    assert!(
        has_reason(&cases[0], &["only one that did not wait"]),
        "{:?}",
        cases[0].reasoning
    );
    assert!(!has_reason(&cases[0], &["when it came"]), "{:?}", cases[0].reasoning);
}

#[test]
fn the_kill_of_a_service_explains_no_exception_of_another_node() {
    let kernel = "2026-05-02T08:00:01.300000+00:00 b6 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),\
                  cpuset=kubepods,mems_allowed=0-1,oom_memcg=/kubepods/pod12/dcgm,task_memcg=/kubepods/pod12/dcgm,\
                  task=dcgm-exporter,pid=771,uid=0\n2026-05-02T08:00:01.300100+00:00 b6 kernel: Memory cgroup out of \
                  memory: Killed process 771 (dcgm-exporter) total-vm:1220132kB, anon-rss:120432kB, file-rss:1012kB, \
                  shmem-rss:0kB, UID:0 pgtables:984kB oom_score_adj:999\n";
    let lost = "2026-05-02 08:00:05 [rank 0] [E ProcessGroupNCCL.cpp:542] [Rank 0] Collective WorkNCCL(SeqNum=99, \
                OpType=ALLREDUCE, NumelIn=12, NumelOut=12, Timeout(ms)=600000) raised the following async exception: NCCL \
                error: remote process exited or there was a network error\n";
    let raised = "2026-05-02 08:00:04 [rank 3] Traceback (most recent call last):\n2026-05-02 08:00:04 [rank 3]   File \
                  \"/srv/t.py\", line 99, in <module>\n2026-05-02 08:00:04 [rank 3]     assert len(x) < 9\n2026-05-02 \
                  08:00:04 [rank 3] AssertionError\n";
    let cases = diagnose(&[
        ("b6.kern.log", kernel),
        ("b6.rank0.log", lost),
        ("b7.rank3.log", raised),
    ]);
    assert_eq!(cases[0].class, "assertion-error", "{:?}", classes(&cases));
    assert_eq!(cases[0].root_rank, Some(Rank(3)));
    // Without an error of its own, the killed process may be of the job.
    let cases = diagnose(&[("b6.kern.log", kernel), ("b6.rank0.log", lost)]);
    assert_eq!(classes(&cases), ["container-oom-kill"]);
}

#[test]
fn a_node_that_did_not_answer_and_restarted_later_is_one_failure() {
    let job = "slurmstepd: error: *** STEP 55.0 ON b6 CANCELLED AT 2026-05-02T08:09:32 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR \
               DETAILS ***\n";
    let controller = "[2026-05-02T08:08:11.001] error: Nodes b7 not responding\n[2026-05-02T08:09:31.990] error: Nodes b7 not \
                      responding, setting DOWN\n[2026-05-02T08:18:40.001] Node b7 rebooted unexpectedly\n\
                      [2026-05-02T08:18:40.101] validate_node_specs: Node b7 unexpectedly rebooted boot_time=1777709780 last \
                      response=1777709191\n";
    let cases = diagnose(&[("slurm-55.out", job), ("slurmctld.log", controller)]);
    assert_eq!(classes(&cases), ["node-crash"]);
    assert_eq!(cases[0].root_node.as_ref().map(|node| node.as_str()), Some("b7"));
    assert!(
        has_reason(&cases[0], &["earlier", "slurm-node-fail", "confirms it"]),
        "{:?}",
        cases[0].reasoning
    );
    // A node that answered until shortly before its restart is another failure.
    let later = controller.replace("1777709191", "1777709900");
    let cases = diagnose(&[("slurm-55.out", job), ("slurmctld.log", &later)]);
    assert_eq!(cases.len(), 2, "{:?}", classes(&cases));
}

#[test]
fn an_error_without_a_time_belongs_to_the_period_after_the_last_work_of_its_log() {
    let kernel = "2026-05-01T09:00:00.000000+00:00 b7 kernel: NVRM: Xid (PCI:0000:1b:00): 13, pid=880, name=python, Graphics SM \
                  Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address\n2026-05-02T08:00:08.410000+00:00 b7 kernel: \
                  NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n";
    let rank = |work: &str| {
        format!(
            "{work} rank 6 step 700 loss 2.0\nTraceback (most recent call last):\n  File \"/srv/t.py\", line 301, in \
             <module>\n    loss.backward()\ntorch.AcceleratorError: CUDA error: unspecified launch failure\n"
        )
    };
    let cases = diagnose(&[("kern.log", kernel), ("rank6.log", &rank("2026-05-02 08:00:01"))]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus", "gpu-engine-exception"]);
    assert_eq!(cases[0].root_rank, Some(Rank(6)));
    // No period follows the work.
    let cases = diagnose(&[("kern.log", kernel), ("rank6.log", &rank("2026-05-02 12:00:01"))]);
    assert!(
        classes(&cases).contains(&"cuda-launch-failure"),
        "{:?}",
        classes(&cases)
    );
}

#[test]
fn the_head_of_a_firmware_record_is_part_of_the_fault_that_its_section_names() {
    let record = |lines: &[&str]| -> String {
        let lines = lines.iter().enumerate();
        let lines = lines.map(|(at, line)| format!("2026-05-02T08:00:00.{at:03}000+00:00 b7 kernel: {line}\n"));
        lines.collect()
    };
    let head = [
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 514",
        "{1}[Hardware Error]: event severity: fatal",
        "{1}[Hardware Error]:  Error 0, type: fatal",
    ];
    let sections: [(&[&str], &str); 4] = [
        (
            &[
                "{1}[Hardware Error]:   section_type: PCIe error",
                "{1}[Hardware Error]:   device_id: 0000:3a:00.0",
            ],
            "pcie-error",
        ),
        (
            &["{1}[Hardware Error]:   section_type: memory error"],
            "host-memory-fault",
        ),
        (
            &[
                "{1}[Hardware Error]:   section type: unknown, 330f1140-72a5-11df-9690-0002a5d5c51b",
                "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3a:00.0",
            ],
            "pcie-error",
        ),
        (
            &["EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x3f4e2c)"],
            "host-memory-fault",
        ),
    ];
    for (section, class) in sections {
        let lines: Vec<&str> = head.iter().chain(section).copied().collect();
        let cases = diagnose(&[("b7/kern.log", &record(&lines))]);
        assert_eq!(classes(&cases), [class], "{section:?}");
        assert!(
            has_reason(&cases[0], &["cpu-hardware-error", "which confirms it"]),
            "{:?}",
            cases[0].reasoning
        );
        assert!(cases[0].alternatives.is_empty(), "{:?}", cases[0].alternatives);
    }
    // A head without a section, and one of another record, name no part.
    let alone = diagnose(&[("b7/kern.log", &record(&head))]);
    assert_eq!(classes(&alone), ["cpu-hardware-error"]);
    let mut other = head.to_vec();
    other.push("{2}[Hardware Error]:   section_type: PCIe error");
    let cases = diagnose(&[("b7/kern.log", &record(&other))]);
    assert!(
        !has_reason(&cases[0], &["cpu-hardware-error", "which confirms it"]),
        "{:?}",
        cases[0].reasoning
    );
}
