//! Folders of logs: machines, ranks and shared parts that lines name, and the writers of lines.

use rankguard_model::Rank;
use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

fn only(files: &[(&str, &str)]) -> OfflineCase {
    let cases = diagnose(files);
    let classes: Vec<&str> = cases.iter().map(|case| case.class.as_str()).collect();
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    assert_eq!(cases.len(), 1, "{classes:?} in {names:?}");
    cases.into_iter().next().expect("one case")
}

fn says(case: &OfflineCase, words: &str) -> bool {
    case.reasoning.iter().any(|reason| reason.contains(words))
}

const NCCL: &str = "2026-03-04 08:10:02,000 ERROR torch.distributed.DistBackendError: NCCL error in: \
                    ProcessGroupNCCL.cpp:2005, remote process exited or there was a network error";

#[test]
fn nodes_in_the_words_of_kubernetes_are_blamed() {
    let events =
        "2026-03-04T08:00:00Z   Normal    NodeNotReady   node/pool-12   Node pool-12 status is now: NodeNotReady";
    let case = only(&[("events.log", events)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("node-crash", "node pool-12")
    );
    let xid = "2026-03-04T08:00:00Z   Warning   XidError   node/pool-12   kernel: NVRM: Xid (PCI:0000:1b:00): 79, \
               pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
    assert_eq!(only(&[("events.log", xid)]).blamed, "gpu 0000:1b:00 of node pool-12");
    let described = "Name:               pool-12\nConditions:\n  Type    Status    LastHeartbeatTime    Reason    Message\n  \
                     Ready   Unknown   Wed, 04 Mar 2026 08:00:00 +0000   NodeStatusUnknown   Kubelet stopped posting \
                     node status.\n";
    assert_eq!(only(&[("node.txt", described)]).blamed, "node pool-12");
}

#[test]
fn nodes_in_the_words_of_slurm_are_blamed() {
    let drained = "[2026-03-04T08:00:00.000] update_node: node h12 reason set to: NHC: GPU count 3 != 4\n";
    let case = only(&[("slurmctld.log", drained)]);
    assert_eq!(case.blamed, "node h12");
    assert!(says(&case, "the scheduler says"), "{:?}", case.reasoning);
    assert!(!says(&case, "the job's log"), "{:?}", case.reasoning);
    let lost = "[2026-03-04T08:00:00.000] error: Nodes r[1-2] not responding, setting DOWN\n";
    assert_eq!(only(&[("slurmctld.log", lost)]).blamed, "nodes r[1-2]");
    let prolog = "[2026-03-04T08:00:00.000] error: prolog failed: rc:256 output: GPU count 3 != 4\n";
    let drained = "[2026-03-04T08:00:00.100] error: prolog_running_decr: drain node d3: Prolog error\n";
    assert_eq!(
        only(&[("d3/slurmd.log", prolog), ("slurmctld.log", drained)]).blamed,
        "node d3"
    );
}

#[test]
fn a_machine_that_is_not_ready_is_one_case() {
    let service =
        "2026-03-04T08:00:00+00:00 u2 systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n";
    let program =
        "ERROR RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n";
    for stamp in ["", "2026-03-04 08:05:00 "] {
        let case = only(&[("u2/syslog", service), ("u2/rank0.log", &format!("{stamp}{program}"))]);
        assert_eq!(
            (case.class.as_str(), case.blamed.as_str()),
            ("fabric-manager-not-ready", "node u2"),
            "{stamp}"
        );
    }
}

#[test]
fn the_quoted_exception_has_the_class() {
    let log = "Traceback (most recent call last):\n  File \"/app/hub.py\", line 5, in get\n    r = \
               requests.get(u)\nrequests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, \
               'Connection reset by peer'))\n\nDuring handling of the above exception, another exception \
               occurred:\n\nTraceback (most recent call last):\n  File \"/app/hub.py\", line 8, in get\n    return \
               cache[u]\nKeyError: 'https://hub.example/x'\n";
    let case = only(&[("rank0.log", log)]);
    assert_eq!(case.class, "connection-reset");
    assert!(
        says(&case, "says \"requests.exceptions.ConnectionError"),
        "{:?}",
        case.reasoning
    );
    assert_eq!(case.key_lines[0].line, 4);
}

#[test]
fn a_machine_check_is_the_cause_of_the_lost_node() {
    let lost = "[2026-03-04T08:03:00.000] error: Nodes k12 not responding, setting DOWN\n\
                [2026-03-04T08:03:00.001] Killing JobId=5 on failed node k12\n";
    let check = "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be00000000800400";
    let panic = "Kernel panic - not syncing: Fatal machine check";
    let booted = format!("[  712.100001] {check}\n[  712.101001] {panic}\n");
    let stamped = format!("[Wed Mar  4 08:00:00 2026] {check}\n[Wed Mar  4 08:00:00 2026] {panic}\n");
    for (name, kernel) in [
        ("k12/console.log", &booted),
        ("k12/dmesg.log", &booted),
        ("k12/dmesg.log", &stamped),
        ("k12-dmesg.txt", &stamped),
    ] {
        let case = only(&[("slurmctld.log", lost), (name, kernel)]);
        assert_eq!(
            (case.class.as_str(), case.blamed.as_str()),
            ("cpu-hardware-error", "node k12"),
            "{name}: {kernel}"
        );
    }
}

#[test]
fn reports_of_one_lost_node_are_one_case() {
    let controller = "[2026-03-04T08:00:01.100] error: Nodes k12 not responding\n\
                      [2026-03-04T08:03:21.100] error: Nodes k12 not responding, setting DOWN\n\
                      [2026-03-04T08:03:21.102] Killing JobId=5 on failed node k12\n";
    let output = "iteration 1200 | loss 2.22\n\
                  slurmstepd: error: *** JOB 5 ON k11 CANCELLED AT 2026-03-04T08:03:22 DUE TO NODE FAILURE, SEE \
                  SLURMCTLD LOG FOR DETAILS ***\n\
                  srun: error: Node failure on k12\n";
    let case = only(&[("slurmctld.log", controller), ("slurm-5.out", output)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("slurm-node-fail", "node k12")
    );
}

#[test]
fn services_of_a_machine_name_its_host() {
    let lines = [
        "smartd[70]: Device: /dev/sdc [SAT], 8 Currently unreadable (pending) sectors",
        "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
        "systemd[1]: train.service: A process of this unit has been killed by the OOM killer.",
    ];
    for line in lines {
        for name in ["syslog", "b12/syslog", "b12/journal.log"] {
            let case = only(&[(name, &format!("2026-03-04T08:00:00+00:00 b12 {line}\n"))]);
            assert_eq!(case.blamed, "node b12", "{name}: {line}");
            assert!(says(&case, "the system log of node b12 says"), "{:?}", case.reasoning);
        }
    }
}

#[test]
fn an_error_in_the_output_of_a_job_is_not_the_launchers() {
    let case = only(&[(
        "ds.log",
        "w7: [2026-03-04 08:00:00,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 991\n\
         w7: OSError: [Errno 28] No space left on device\n",
    )]);
    assert!(!says(&case, "the launcher says \"w7: OSError"), "{:?}", case.reasoning);
}

#[test]
fn a_server_that_several_nodes_lost_is_at_fault_and_no_node() {
    let lost = |node: &str| {
        format!("2026-03-04T08:00:00+00:00 {node} kernel: nfs: server store2 not responding, still trying\n")
    };
    let case = only(&[
        ("m1/syslog", &lost("m1")),
        ("m2/syslog", &lost("m2")),
        ("m3/syslog", &lost("m3")),
    ]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("filesystem-hang", "server store2")
    );
    assert!(says(&case, "The blame is on server store2"), "{:?}", case.reasoning);
    // One client names the server; it is at fault itself only if the log of another machine shows that the server answers.
    let case = only(&[("m1/syslog", &lost("m1"))]);
    assert_eq!((case.blamed.as_str(), &case.root_node), ("server store2", &None));
    assert_eq!(case.alternatives.len(), 0, "{:?}", case.alternatives);
    assert!(says(&case, "the connection of this client"), "{:?}", case.reasoning);
    let healthy = "2026-03-04T08:00:00+00:00 m2 kernel: perf: interrupt took too long (2504 > 2500)\n";
    let case = only(&[("m1/syslog", &lost("m1")), ("m2/syslog", healthy)]);
    assert_eq!(case.blamed, "node m1");
}

/// lustre/ptlrpc/import.c, `ptlrpc_set_import_discon`, and lustre/ptlrpc/import.c, "This client was evicted".
#[test]
fn clients_of_lustre_name_the_server_that_they_lost() {
    let lost = |node: &str, import: &str| {
        format!(
            "2026-06-11T03:12:01+00:00 {node} kernel: Lustre: work-OST0003-osc-{import}: Connection to work-OST0003 (at \
             10.0.0.5@o2ib) was lost; in progress operations using this service will wait for recovery to complete\n"
        )
    };
    let waits = "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9121, OpType=ALLREDUCE, NumelIn=1, \
                 NumelOut=1, Timeout(ms)=1800000) ran for 1800021 milliseconds before timing out.\n";
    let (one, two) = (lost("c1", "ffff9a1c"), lost("c2", "ffff8b2d"));
    let both = [
        ("c1.kern.log", one.as_str()),
        ("c2.kern.log", two.as_str()),
        ("train.log", waits),
    ];
    for files in [&both[..1], &both[..2], &both[..]] {
        let case = &diagnose(files)[0];
        assert_eq!(
            (case.class.as_str(), case.blamed.as_str()),
            ("filesystem-hang", "server 10.0.0.5@o2ib"),
            "{files:?}"
        );
    }
    let mounted = "2026-06-11T03:10:00+00:00 c3 kernel: Lustre: Mounted work-client\n";
    assert_eq!(
        only(&[("c1.kern.log", &one), ("c3.kern.log", mounted)]).blamed,
        "node c1"
    );
    let evicted = "2026-06-11T03:12:03+00:00 c2 kernel: LustreError: 167-0: work-OST0003-osc-ffff8b2d: This client was evicted by \
                   work-OST0003; in progress operations using this service will fail.\n";
    assert_eq!(only(&[("c2.kern.log", evicted)]).blamed, "node c2");
}

#[test]
fn a_controller_is_not_the_machine_that_it_reports_as_lost() {
    let of = |program: &str, text: &str| format!("Mar  4 05:33:20 head01 {program}[1822]: {text}\n");
    let silent = of("slurmctld", "error: Nodes hoth not responding, setting DOWN");
    let killed = of("slurmctld", "Killing JobId=8 on failed node hoth");
    let requeued = of("slurmctld", "requeue job JobId=8 due to failure of node hoth");
    let unready = of(
        "kube-controller-manager",
        "I0304 05:33:20.5 11 event.go:389] \"Event occurred\" object=\"hoth\" kind=\"Node\" reason=\"NodeNotReady\"",
    );
    for line in [&silent, &killed, &requeued, &unready] {
        for name in ["messages", "head01/messages", "head01/syslog"] {
            assert_eq!(only(&[(name, line)]).blamed, "node hoth", "{name}: {line}");
        }
    }
    let client = "Mar  4 05:33:19 head01 kernel: nfs: server nas1 not responding, still trying\n";
    let cases = diagnose(&[("head01/messages", &format!("{client}{silent}"))]);
    assert!(cases.iter().any(|case| case.blamed == "node hoth"), "{cases:#?}");
}

/// Lightning-AI/lit-llama#380, pytorch/pytorch#113128, open-mpi/ompi#11830 in their forms.
#[test]
fn lines_name_the_machine_of_a_rank_an_adapter_or_a_daemon() {
    let port = "iter 83593: loss 2.6294\nn48:34050:34121 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port \
                error\n\nn51:73076:73185 [4] transport/net_ib.cc:1238 NCCL WARN NET/IB : Got completion from peer n48<37948> \
                with error 12, opcode 2, len 1, vendor err 129\n";
    let case = only(&[("job.log", port)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("nic-link-down", "node n48")
    );
    let ecc = "[rank12]:[E817 17:40:34.22 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 12] Process group watchdog thread \
               terminated with exception: CUDA error: uncorrectable ECC error encountered\n[rank13]:[E817 17:50:36.10 \
               ProcessGroupNCCL.cpp:607] [Rank 13] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8812, \
               OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n";
    let case = only(&[("job.log", ecc)]);
    assert_eq!(
        (case.blamed.as_str(), case.root_rank),
        ("the node of rank 12", Some(Rank(12)))
    );
    let address = "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[64112,0],0] on node head\n  Remote \
                   daemon: [[64112,0],1] on node 10.126.10.10\n";
    assert_eq!(only(&[("out.txt", address)]).blamed, "node 10.126.10.10");
    let host = "ORTE has lost communication with its daemon located on node:\n\n   hostname:  n17.example.org\n\nThis is usually \
                due to either a failure of the TCP network\n";
    assert_eq!(only(&[("job.e12", host)]).blamed, "node n17.example.org");
}

#[test]
fn a_row_of_nodes_names_the_one_that_is_down() {
    let table = "NODELIST    NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT FEATURES REASON\n\
                 c001            1     main*       down*   12   12:1:1  64267        0      1   (null) Not responding\n\
                 c002            1     main*        idle   12   12:1:1  64267        0      1   (null) none\n";
    let case = only(&[("sinfo.txt", table)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("slurm-node-fail", "node c001")
    );
}

#[test]
fn a_node_that_responds_again_has_not_failed() {
    let lost = "[2026-03-04T05:33:20.417] error: Nodes gpu07 not responding\n";
    let back = "[2026-03-04T05:33:31.517] Node gpu07 now responding\n";
    let down = "[2026-03-04T05:36:40.512] error: Nodes gpu07 not responding, setting DOWN\n";
    let other = back.replace("gpu07", "gpu08");
    assert!(diagnose(&[("slurmctld.log", &format!("{lost}{back}"))]).is_empty());
    for log in [
        format!("{lost}{other}"),
        format!("{lost}{down}{back}"),
        format!("{back}{lost}"),
    ] {
        assert_eq!(only(&[("slurmctld.log", &log)]).blamed, "node gpu07", "{log}");
    }
}

#[test]
fn links_that_go_down_together_blame_what_the_nodes_share() {
    let down = |node: &str| format!("2026-03-04T08:10:00+00:00 {node} kernel: mlx5_core 0000:5e:00.0 ib0: Link down\n");
    let case = only(&[
        ("m1/syslog", &down("m1")),
        ("m2/syslog", &down("m2")),
        ("m1/rank0.log", &format!("{NCCL}\n")),
    ]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("nic-link-down", "what nodes m1, m2 share")
    );
    let case = only(&[("m1/syslog", &down("m1")), ("m1/rank0.log", &format!("{NCCL}\n"))]);
    assert_eq!(case.blamed, "nic ib0 of node m1");
}

#[test]
fn the_link_of_a_slot_goes_down_with_its_gpu() {
    let case = only(&[(
        "m1/dmesg.log",
        "[Wed Mar  4 08:00:00 2026] pcieport 0000:4a:00.0: pciehp: Slot(3): Link Down\n\
         [Wed Mar  4 08:00:01 2026] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off \
         the bus.\n",
    )]);
    assert_eq!(case.class, "gpu-fallen-off-bus");
}

#[test]
fn a_rank_label_after_a_level_names_the_rank() {
    let case = only(&[(
        "train.log",
        "2026-03-04 08:00:00,000 ERROR [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    )]);
    assert_eq!((case.class.as_str(), case.root_rank), ("cuda-oom", Some(Rank(3))));
}

#[test]
fn a_link_that_came_up_again_is_no_case() {
    let log = "2026-03-04T08:00:00+00:00 m1 kernel: ixgbe 0000:01:00.0 eth0: NIC Link is Down\n\
               2026-03-04T08:00:02+00:00 m1 kernel: ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps, Flow Control: RX/TX\n";
    assert!(diagnose(&[("m1/syslog", log)]).is_empty());
    let down = log.lines().next().unwrap_or_default();
    assert_eq!(only(&[("m1/syslog", down)]).class, "nic-link-down");
}

#[test]
fn a_fault_beside_a_run_that_ended_well_would_not_end_ranks() {
    let case = only(&[
        (
            "m1/syslog",
            "2026-03-04T08:00:00+00:00 m1 kernel: NVRM: Xid (PCI:0000:19:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: \
             Error: Failed to write row remap entry\n",
        ),
        (
            "m1/job.log",
            "2026-03-04 08:30:00 INFO epoch 1/1 loss 1.0\n2026-03-04 08:40:00 INFO Training finished\n",
        ),
    ]);
    assert!(!says(&case, "it would end ranks"), "{:?}", case.reasoning);
}

#[test]
fn the_only_rank_that_is_behind_is_named() {
    let waits = |rank: u32| {
        format!(
            "[rank{rank}]:[E304 05:00:00.110000000 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective \
             operation timeout: WorkNCCL(SeqNum=500, OpType=ALLREDUCE, NumelIn=100, NumelOut=100, Timeout(ms)=600000) ran \
             for 600020 milliseconds before timing out.\n[rank{rank}]:[E304 05:00:00.110100000 \
             ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work \
             sequence id: 500 PG status: last enqueued work: 500, last completed work: 499\n"
        )
    };
    let behind = "[rank2]:[E304 05:00:00.240200000 ProcessGroupNCCL.cpp:1800] [PG ID 0 PG GUID 0(default_pg) Rank 2] \
                  Received a dump signal due to a collective timeout from rank 0 and we will try our best to dump the debug \
                  info. Last enqueued NCCL work: 499, last completed NCCL work: 499.\n";
    let log = [waits(0), waits(1), waits(3), behind.to_owned()].concat();
    let case = only(&[("job.log", &log)]);
    assert_eq!(
        (case.class.as_str(), case.root_rank),
        ("hang-stalled-ranks", Some(Rank(2)))
    );
    let even = [waits(0), waits(1), waits(3)].concat();
    assert_eq!(only(&[("job.log", &even)]).class, "nccl-timeout");
}

#[test]
fn an_error_below_a_banner_belongs_to_the_report_after_it() {
    let job = "W0304 08:00:00.000000 1401 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each \
               process to be 1 in default\n[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/app/t.py\", line 6, \
               in train\n[rank1]: torch.AcceleratorError: CUDA error: unspecified launch failure\nE0304 08:20:02.002000 1401 \
               torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 1413) of \
               binary: /usr/bin/python3\n";
    let kernel = "2026-03-04T08:20:00+00:00 g7 kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU \
                  has fallen off the bus.\n";
    let case = only(&[("g7/syslog", kernel), ("g7/slurm-1.out", job)]);
    assert_eq!(case.class, "gpu-fallen-off-bus");
}

#[test]
fn the_host_of_a_batch_script_exceeded_the_memory_of_its_job() {
    let log = |cancelled: &str| {
        format!(
            "slurmstepd: error: Job 4 exceeded memory limit (503316480 > 500000000), being killed\nslurmstepd: error: \
             Exceeded job memory limit\nslurmstepd: error: *** {cancelled} CANCELLED AT 2026-03-04T10:00:00 ***\n"
        )
    };
    let case = only(&[("slurm-4.out", &log("JOB 4 ON h2"))]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("host-oom-kill", "node h2")
    );
    // A step has a daemon on each of its nodes.
    let case = only(&[("slurm-4.out", &log("STEP 4.0 ON h2"))]);
    assert_ne!(case.blamed, "node h2");
}

#[test]
fn the_address_that_ray_names_is_the_node() {
    let log = "2026-03-04 10:00:00,000\tWARNING worker.py:2107 -- Task was killed due to the node running low on \
               memory.\nMemory on the node (IP: 10.0.0.7, ID: abc) where the task (task ID: ff, name=Trainer.run, pid=881, \
               memory used=210.11GB) was running was 478.10GB / 503.00GB (0.950498), which exceeds the memory usage \
               threshold of 0.95. Ray killed this worker (ID: 11) because it was the most recently scheduled \
               task\nray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n";
    let case = only(&[("ray.log", log)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("host-oom-kill", "node 10.0.0.7")
    );
}

#[test]
fn the_only_task_that_stopped_its_heartbeats_is_the_first_rank() {
    let log = "F0304 11:00:00.200000 200 client.h:80] Terminating process because the JAX distributed service detected fatal \
               errors. This most likely indicates that another task died; see the other task logs for more details. \
               absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending \
               heartbeats):\n/job:jax_worker/replica:0/task:3\nThe tasks have crashed or their network is unhealthy.\n";
    let case = only(&[("task0.log", log)]);
    assert_eq!(
        (case.class.as_str(), case.root_rank),
        ("remote-worker-lost", Some(Rank(3)))
    );
}

#[test]
fn a_requested_reboot_is_the_cause_of_the_lost_node() {
    let journal = "2026-03-04T10:00:00+0000 b2 systemd-logind[900]: System is rebooting.\n\
                   2026-03-04T10:00:02+0000 b2 systemd[1]: Shutting down.\n\
                   2026-03-04T10:04:00+0000 b2 kernel: Linux version 5.15.0-92-generic (buildd@x)\n";
    let job = "2026-03-04T09:59:59 step 100 loss 1.0\nslurmstepd: error: *** JOB 5 ON b2 CANCELLED AT \
               2026-03-04T10:00:02 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n";
    let case = only(&[("b2/journal.log", journal), ("b2/slurm-5.out", job)]);
    assert_eq!((case.class.as_str(), case.blamed.as_str()), ("maintenance", "node b2"));
}

#[test]
fn a_gpu_is_named_by_its_number_without_its_machine() {
    let log = "+---------------------------+------------------------------------------------+\n\
               | Diagnostic                | Result                                         |\n\
               | GPU Memory                | Fail - GPU: 2                                  |\n\
               | Warning                   | GPU 2 GPU 2 had uncorrectable memory errors: 1 |\n";
    let case = only(&[("diag.txt", log)]);
    assert_eq!(case.blamed, "gpu 2 of a machine that the log does not name");
}
