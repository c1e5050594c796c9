//! Folders of logs: sentences that claim no more than the logs show.

use rankguard_offline::OfflineCase;

use crate::folders::{diagnose, group};

fn classes(cases: &[OfflineCase]) -> Vec<&str> {
    cases.iter().map(|case| case.class.as_str()).collect()
}

/// Returns true if a line of the reasoning has all parts.
fn has_reason(case: &OfflineCase, parts: &[&str]) -> bool {
    let mut reasons = case.reasoning.iter();
    reasons.any(|reason| parts.iter().all(|part| reason.contains(part)))
}

/// Returns one line of work a minute, from minute `from` up to minute `to` of ten o'clock.
fn work(from: u32, to: u32) -> String {
    let minutes = from..to;
    minutes
        .map(|minute| format!("2026-05-02 10:{minute:02}:01,120 INFO step {minute} loss 2.3\n"))
        .collect()
}

const LOST: &str = "ERROR ncclRemoteError: A call failed possibly due to a network error or a remote process exiting \
                    prematurely.";

#[test]
fn a_line_without_a_stamp_is_older_than_a_failure_long_after_the_stamp_below_it() {
    let early = "Traceback (most recent call last):\n  File \"/srv/warm.py\", line 12, in prefetch\n    \
                 urlopen(index)\nConnectionRefusedError: [Errno 111] Connection refused\n";
    let failed = format!(
        "{}2026-05-02 10:08:40,100 ERROR RuntimeError: optimizer state of layer 3 is stale\n",
        work(0, 2)
    );
    let survivor = format!("{early}{}2026-05-02 10:08:41,300 {LOST}\n", work(0, 2));
    let cases = diagnose(&[("rank0.log", &survivor), ("rank1.log", &failed)]);
    let early = [
        "before 2026-05-02T10:00:01.120Z",
        "connection-refused",
        "which does not explain it",
    ];
    assert!(has_reason(&cases[0], &early), "{:?}", cases[0].reasoning);
    assert!(has_reason(
        &cases[0],
        &["1.2 s later", "remote-worker-lost", "follows from it"]
    ));
    // Below the last stamp the order is not known.
    let below = format!("{}{}\n", work(0, 2), LOST.trim_start_matches("ERROR "));
    let cases = diagnose(&[("rank0.log", &below), ("rank1.log", &failed)]);
    let open = [
        "at a time that cannot be compared",
        "remote-worker-lost",
        "may follow from it",
    ];
    let open = open.map(|part| if part.starts_with("at a") { &part[1..] } else { part });
    assert!(has_reason(&cases[0], &open), "{:?}", cases[0].reasoning);
}

#[test]
fn the_kernel_is_named_only_for_its_own_kill() {
    let step = "step 1 loss 2.3\n";
    let by_kernel = [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0. Some of the step tasks have been OOM Killed.",
        "srun: error: n12: task 3: Out Of Memory",
    ];
    let by_scheduler = [
        "slurmstepd: error: Step 4.0 exceeded memory limit (41943040 > 33554432), being killed",
        "slurmstepd: error: StepId=4.0 exceeded virtual memory limit (41943040 > 33554432), being killed",
        "slurmstepd: error: Exceeded job memory limit",
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        "=>> PBS: job killed: vmem 41943040kb exceeded limit 33554432kb",
    ];
    let all = by_kernel.iter().map(|line| (line, true));
    for (line, is_kernel) in all.chain(by_scheduler.iter().map(|line| (line, false))) {
        let cases = diagnose(&[("slurm-4.out", &format!("{step}{line}\n"))]);
        assert_eq!(classes(&cases), ["host-oom-kill"], "{line}");
        let says_kernel = has_reason(&cases[0], &["the kernel ended a process"]);
        assert_eq!(says_kernel, is_kernel, "{line}: {:?}", cases[0].reasoning);
    }
}

#[test]
fn nodes_that_the_logs_name_are_stated_if_none_of_them_is_to_blame() {
    let fault = "2026-05-02 10:08:41,310 ERROR RuntimeError: CUDA error: uncorrectable ECC error encountered\n";
    let lost = format!("2026-05-02 10:08:42,310 {LOST}\n");
    let n1 = format!("{lost}2026-05-02 10:08:43,000 n1 ERROR end\n");
    let kernel =
        |node: &str| format!("2026-05-02T10:00:00.000000+00:00 {node} kernel: nvidia-nvlink: core initialized\n");
    let cases = diagnose(&[
        ("train.log", fault),
        ("n1/kern.log", &kernel("n1")),
        ("n2/kern.log", &kernel("n2")),
        ("n1/rank0.log", &n1),
    ]);
    assert_eq!(classes(&cases), ["gpu-ecc-uncorrectable"]);
    assert!(!has_reason(&cases[0], &["name no machine"]), "{:?}", cases[0].reasoning);
    assert!(has_reason(&cases[0], &["they name n1, n2"]), "{:?}", cases[0].reasoning);
    assert_eq!(cases[0].blamed, "a machine that the logs do not show");
    // Without any node the old words are true.
    let cases = diagnose(&[("train.log", fault)]);
    assert!(
        has_reason(&cases[0], &["The logs name no machine to blame"]),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn a_lack_of_gpu_memory_that_a_run_overcame_is_noted() {
    let reports = [
        "2026-05-02 09:00:05,310 WARNING CUDA out of memory. Tried to allocate 2.00 GiB. Retrying with micro batch 4\n",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nBatch size 64 failed, trying batch size \
         32\nFinished batch size finder, will continue with full run using batch size 32\n",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n| WARNING: ran out of memory, retrying batch\n",
    ];
    for report in reports {
        let log = format!(
            "{report}{}2026-05-02 11:00:00,000 INFO training completed successfully\n",
            work(0, 9)
        );
        let found = group(&[("n7/rank0.log", &log)]);
        assert_eq!(classes(&found.cases), Vec::<&str>::new(), "{report}");
        let notes: Vec<String> = found.reports.iter().map(ToString::to_string).collect();
        let is_noted = notes
            .iter()
            .any(|note| note.contains("cuda-oom") && note.contains("the run went on after it"));
        assert!(is_noted, "{report}: {notes:?}");
    }
    // The one that ends the run is a case and no note.
    let log = format!(
        "{}2026-05-02 10:09:00,000 ERROR torch.OutOfMemoryError: CUDA out of memory.\n",
        work(0, 9)
    );
    let found = group(&[("n7/rank0.log", &log)]);
    assert_eq!((classes(&found.cases), found.reports.len()), (vec!["cuda-oom"], 0));
}

#[test]
fn a_link_that_went_down_under_a_run_that_goes_on_is_a_note_with_its_node() {
    let kernel = "2026-05-02T10:05:00.000000+00:00 n1 kernel: mlx5_core 0000:3b:00.0: Port module event: module 0, Cable \
                  unplugged\n2026-05-02T10:05:00.020000+00:00 n1 kernel: mlx5_core 0000:3b:00.0 ens3f0np0: Link down\n";
    let goes_on = work(0, 50);
    let fails = format!("{goes_on}2026-05-02 10:50:02,000 ERROR KeyError: 'f1'\n");
    for (log, expected) in [(&goes_on, vec![]), (&fails, vec!["key-error"])] {
        let found = group(&[("n1/rank0.log", log), ("n1/kern.log", kernel)]);
        assert_eq!(classes(&found.cases), expected);
        let notes: Vec<String> = found.reports.iter().map(ToString::to_string).collect();
        let is_noted = |note: &String| note.contains("nic-link-down on node n1") && note.contains("work long after it");
        assert!(notes.iter().any(is_noted), "{notes:?}");
    }
    // Work that ended with the link does not show that it was not needed.
    let broken = format!("{}2026-05-02 10:05:40,000 {LOST}\n", work(0, 5));
    let found = group(&[("n1/rank0.log", &broken), ("n1/kern.log", kernel)]);
    assert_eq!(classes(&found.cases), ["nic-link-down"]);
}

#[test]
fn waits_that_end_long_after_a_failure_are_part_of_it() {
    let watchdog = |stamp: &str| {
        format!(
            "[rank1]:[E0502 {stamp} ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: \
             WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
        )
    };
    let lost = "2026-05-02T10:04:31.000000+00:00 n1 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=41, name=python, GPU has \
                fallen off the bus.\n";
    let waits = format!("{}{}", work(0, 5), watchdog("10:18:31.100000000"));
    let cases = diagnose(&[
        ("n1/kern.log", lost),
        ("n1/rank0.log", &work(0, 5)),
        ("n2/rank1.log", &waits),
    ]);
    assert_eq!(classes(&cases), ["gpu-fallen-off-bus"]);
    assert!(
        has_reason(&cases[0], &["nccl-timeout", "follows from it"]),
        "{:?}",
        cases[0].reasoning
    );
    // The job worked on: the wait is another failure.
    let worked = work(0, 12);
    let waits = format!("{worked}{}", watchdog("10:22:31.100000000"));
    let cases = diagnose(&[
        ("n1/kern.log", lost),
        ("n1/rank0.log", &worked),
        ("n2/rank1.log", &waits),
    ]);
    assert!(classes(&cases).contains(&"nccl-timeout"), "{:?}", classes(&cases));
}

#[test]
fn a_rank_that_reports_no_timeout_is_named() {
    let waits = |rank: u32| {
        format!(
            "{}[rank{rank}]:[E0502 10:20:11.211034000 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective \
             operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600043 milliseconds before \
             timing out.\n",
            work(0, 10)
        )
    };
    let stands = format!("{}2026-05-02 10:10:02,122 INFO reading shard 17\n", work(0, 10));
    let cases = diagnose(&[
        ("rank-0.log", &waits(0)),
        ("rank-1.log", &waits(1)),
        ("rank-2.log", &stands),
        ("rank-3.log", &waits(3)),
    ]);
    assert_eq!(classes(&cases), ["nccl-timeout"]);
    let named = ["3 ranks", "rank 2 (last line of 2026-05-02T10:10:02.122Z)"];
    assert!(has_reason(&cases[0], &named), "{:?}", cases[0].reasoning);
    let all = [
        ("rank-0.log", waits(0)),
        ("rank-1.log", waits(1)),
        ("rank-2.log", waits(2)),
    ];
    let all: Vec<(&str, &str)> = all.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert!(!has_reason(&diagnose(&all)[0], &["report no timeout"]));
}

#[test]
fn the_rank_and_node_that_a_launcher_names_for_a_crash_are_to_blame() {
    let kernel = "2026-05-02T10:00:11.000000+00:00 n5 kernel: python3[8812]: segfault at 0 ip 00007f sp 00007f error 4 in \
                  libops.so[7f+8000]\n";
    let torchrun = "E0502 10:00:12.302000 8700 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) \
                    local_rank: 1 (pid: 8812) of binary: /opt/python3\nRoot Cause (first observed failure):\n[0]:\n  time      : \
                    2026-05-02_10:00:12\n  host      : n5\n  rank      : 5 (local_rank: 1)\n  exitcode  : -11 (pid: 8812)\n  \
                    error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received by PID 8812\n";
    let cases = diagnose(&[("launcher.log", torchrun), ("n5-kern.log", kernel)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["segfault"], "rank 5 of node n5")
    );
    assert_eq!(
        cases[0].first_at.as_deref(),
        Some("2026-05-02T10:00:11.000Z"),
        "{:?}",
        cases[0].reasoning
    );
    assert!(!has_reason(&cases[0], &["302 ms earlier"]), "{:?}", cases[0].reasoning);
    let mpi = "[n2:20120] *** Process received signal ***\n[n2:20120] Signal: Segmentation fault (11)\nmpirun noticed that \
               process rank 3 with PID 20120 on node n2 exited on signal 11 (Segmentation fault).\n";
    let cases = diagnose(&[("job.out", mpi)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["segfault"], "rank 3 of node n2")
    );
}

#[test]
fn ranks_that_did_not_start_are_the_cause_of_a_wait_for_them() {
    let import = "2026-05-02 10:00:01,000 INFO start\nTraceback (most recent call last):\n  File \"/srv/train.py\", line 3, in \
                  <module>\n    import flash_attn\nModuleNotFoundError: No module named 'flash_attn'\n";
    let waits = "2026-05-02 10:00:03,000 INFO waiting for 16 ranks\ntorch.distributed.DistStoreError: Timed out after 301 \
                 seconds waiting for clients. 14/16 clients joined.\n";
    let cases = diagnose(&[
        ("n1/rank-0.log", waits),
        ("n2/rank-8.log", import),
        ("n2/rank-9.log", import),
    ]);
    assert_eq!(classes(&cases), ["import-error"]);
    assert!(
        has_reason(&cases[0], &["rendezvous-failure", "follow from it"]),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn a_gpu_that_was_not_initialised_is_the_cause_of_a_missing_device() {
    let kernel = "2026-05-02T09:30:05.000000+00:00 n4 kernel: NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! \
                  (0x26:0x56:1474)\n2026-05-02T09:30:05.000000+00:00 n4 kernel: NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, \
                  device minor number 3\n";
    let rank = "2026-05-02 10:00:05,100 INFO start, local rank 3\nTraceback (most recent call last):\n  File \"/srv/train.py\", \
                line 9, in <module>\n    torch.cuda.set_device(local_rank)\nRuntimeError: CUDA error: invalid device ordinal\n";
    let cases = diagnose(&[("n4/kern.log", kernel), ("n4/rank-3.log", rank)]);
    assert_eq!(classes(&cases), ["gpu-internal-fault"]);
    assert_eq!(cases[0].blamed, "gpu 0000:3b:00 of node n4");
    // Alone it is the mistake of the program.
    assert_eq!(
        classes(&diagnose(&[("n4/rank-3.log", rank)])),
        ["cuda-invalid-device-ordinal"]
    );
}

#[test]
fn a_gpu_that_the_driver_names_after_its_first_report_is_to_blame() {
    let kernel = "2026-05-02T10:00:11.000000+00:00 n8 kernel: [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 \
                  timeout, signaled seq=8123, emitted seq=8125\n2026-05-02T10:00:11.100000+00:00 n8 kernel: amdgpu \
                  0000:c1:00.0: amdgpu: GPU reset begin!\n2026-05-02T10:00:15.000000+00:00 n8 kernel: amdgpu 0000:c1:00.0: \
                  amdgpu: GPU reset(3) failed\n";
    let cases = diagnose(&[("n8/kern.log", kernel)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["gpu-internal-fault"], "gpu 0000:c1:00 of node n8")
    );
    assert!(!has_reason(&cases[0], &["follows from it"]), "{:?}", cases[0].reasoning);
}

#[test]
fn a_node_in_the_name_of_a_console_log_is_the_one_that_the_scheduler_names() {
    let console = "[2026-05-02 10:00:03] [812034.118234] mce: [Hardware Error]: CPU 34: Machine Check Exception: 5 Bank 7: \
                   bd00000000100090\n[2026-05-02 10:00:03] [812034.118280] Kernel panic - not syncing: Fatal local machine \
                   check\n";
    let slurm = "[2026-05-02T10:04:41.114] error: Nodes gpu-07 not responding, setting DOWN\n";
    let cases = diagnose(&[("console-gpu-07.log", console), ("slurmctld.log", slurm)]);
    assert_eq!(cases[0].blamed, "node gpu-07", "{:?}", cases[0].reasoning);
}

#[test]
fn a_node_that_an_event_names_after_its_pod_is_to_blame() {
    let events = "LAST SEEN   TYPE      REASON              OBJECT        MESSAGE\n8m          Warning   NodeNotReady        \
                  pod/train-3   Node is not ready\n8m          Normal    NodeNotReady        node/k4       Node k4 status is \
                  now: NodeNotReady\n";
    let cases = diagnose(&[("events.txt", events)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["node-crash"], "node k4")
    );
}

#[test]
fn a_smart_value_that_changed_is_no_fault_of_a_disk() {
    let log = |text: &str| format!("May  2 09:58:00 n9 smartd[800]: Device: /dev/sda [SAT], {text}\n");
    let changed = log("SMART Prefailure Attribute: 1 Raw_Read_Error_Rate changed from 117 to 118");
    assert_eq!(classes(&diagnose(&[("n9/messages", &changed)])), Vec::<&str>::new());
    let failed = log("FAILED SMART self-check. BACK UP DATA NOW!");
    assert_eq!(classes(&diagnose(&[("n9/messages", &failed)])), ["local-disk-fault"]);
}

#[test]
fn a_system_log_of_services_only_is_a_log_of_its_node() {
    let messages = "May  2 09:58:00 n9 systemd[1]: Dependency failed for Remote File Systems.\nMay  2 09:58:00 n9 \
                    mount.nfs[811]: mount.nfs: Connection timed out for filer1:/export/data on /data\nMay  2 09:58:00 n9 \
                    systemd[1]: Failed to mount /data.\n";
    let rank = "2026-05-02 10:00:00,200 INFO start\nTraceback (most recent call last):\n  File \"/srv/data.py\", line 20, in \
                load\n    open(index)\nFileNotFoundError: [Errno 2] No such file or directory: '/data/index.json'\n";
    let cases = diagnose(&[("n9/messages", messages), ("n9/rank-2.log", rank)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["filesystem-mount-failure"], "node n9")
    );
}

#[test]
fn a_log_that_ends_with_an_uncaught_exception_states_the_end_of_its_run() {
    let bus = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n";
    let frames = "  File \"/opt/lib/queue.py\", line 173, in get\n    self.not_empty.wait(remaining)\n".repeat(5);
    let log = format!(
        "Epoch 0: 6843.771 seconds\n{bus}Traceback (most recent call last):\n{frames}RuntimeError: DataLoader worker (pid \
         325) is killed by signal: Bus error.\n\nDuring handling of the above exception, another exception occurred:\n\n\
         Traceback (most recent call last):\n  File \"main.py\", line 580, in <module>\n    main()\n{frames}RuntimeError: \
         DataLoader worker (pid(s) 325) exited unexpectedly\n"
    );
    let cases = diagnose(&[("log.txt", &log)]);
    let doubt = ["No line states that a run ended"];
    assert!(!has_reason(&cases[0], &doubt), "{:?}", cases[0].reasoning);
    // The same exception in a run that went on.
    let logged = format!("{log}{}", work(0, 9));
    let cases = diagnose(&[("log.txt", &logged)]);
    assert!(
        cases.is_empty() || has_reason(&cases[0], &doubt),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn a_wait_that_blames_no_rank_does_not_name_its_cause() {
    let frames = [
        r#"File "/home/user/recipes/lora_finetune_distributed.py", line 894, in train"#,
        "  self.save_checkpoint(epoch=curr_epoch)",
        r#"File "/home/user/recipes/lora_finetune_distributed.py", line 745, in save_checkpoint"#,
        "  torch.distributed.barrier()",
        r#"File "/opt/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py", line 4556, in barrier"#,
        "  work.wait()",
    ];
    let frames: String = frames.iter().map(|line| format!("[rank2]:   {line}\n")).collect();
    let log = format!(
        "[rank2]: Traceback (most recent call last):\n{frames}[rank2]: RuntimeError: [/pytorch/third_party/gloo/gloo/\
         transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"
    );
    let cases = diagnose(&[("train.log", &log)]);
    assert!(
        has_reason(&cases[0], &["it waited in vain"]),
        "{:?}",
        cases[0].reasoning
    );
    assert!(!has_reason(&cases[0], &["names its cause itself"]));
}

#[test]
fn the_launcher_that_ends_the_others_reacts_to_the_end_that_it_reports_later() {
    let log = "[2026-07-10 04:26:05,876] [INFO] [launch.py:318:sigkill_handler] Killing subprocess 94984\n\
               [2026-07-10 04:26:05,876] [INFO] [launch.py:318:sigkill_handler] Killing subprocess 94985\n\
               [2026-07-10 04:26:35,999] [ERROR] [launch.py:324:sigkill_handler] ['python', '-u', 'train.py', \
               '--local_rank=1'] exits with return code = -11\n";
    let cases = diagnose(&[("train.log", log)]);
    assert_eq!(classes(&cases), ["segfault"]);
    assert!(
        has_reason(
            &cases[0],
            &["30.1 s earlier", "external-termination", "follows from it"]
        ),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn a_second_report_of_a_class_is_no_claim_about_the_same_failure() {
    let log = "[Wed Jul 31 23:14:18 2024] NVRM: Xid (PCI:0000:00:05): 43, pid=1045242, name=pt_main_thread, Ch 00000008\n\
               [Mon Aug  5 03:54:13 2024] NVRM: Xid (PCI:0000:00:05): 43, pid=2512125, name=python3.10, Ch 00000008\n";
    let cases = diagnose(&[("dmesg.txt", log)]);
    let again = ["gpu-engine-exception was reported again at 2024-08-05T03:54:13.000Z (line 2)"];
    assert!(has_reason(&cases[0], &again), "{:?}", cases[0].reasoning);
}

#[test]
fn the_time_of_a_cancellation_and_the_rank_of_a_nan_are_read_from_their_lines() {
    let bar = "  4%|#| 11/50 [1:55:26<6:49:05, 629.37s/it]slurmstepd: error: *** JOB 42221 ON clr1247 CANCELLED AT \
               2026-04-14T16:20:46 DUE TO TIME LIMIT ***\n";
    let cases = diagnose(&[("train.err", bar)]);
    assert_eq!(
        cases[0].first_at.as_deref(),
        Some("2026-04-14T16:20:46.000Z"),
        "{cases:?}"
    );
    let nan = "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel communication \
               collective. Device: 3, node: gpu-133.mt\n";
    let cases = diagnose(&[("train.log", nan)]);
    assert_eq!(cases[0].class, "loss-nan");
    assert_eq!(cases[0].root_rank.map(|rank| rank.0), Some(3), "{cases:?}");
}

/// The log of a rank that runs torchrun: the surviving worker reports the lost connection before torchrun reports the kill.
#[test]
fn the_root_cause_of_torchrun_explains_the_lost_connection_of_its_other_worker() {
    let log = "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer \
               [127.0.0.1]:38629. This is typically caused by a remote worker crashing.\n\
               W1201 00:48:35.247000 5336 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 5533 closing \
               signal SIGTERM\n\
               E1201 00:48:35.315000 5336 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) \
               local_rank: 1 (pid: 5537) of binary: /opt/python3\n\
               torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nstock.py FAILED\nFailures:\n[1]:\n  \
               time      : 2026-12-01_00:48:35\n  host      : n1\n  rank      : 0 (local_rank: 0)\n  \
               exitcode  : -15 (pid: 5533)  (SIGTERM)\n  error_file: <N/A>\n  \
               traceback : Signal 15 (SIGTERM) received by PID 5533\n\
               Root Cause (first observed failure):\n[0]:\n  time      : 2026-12-01_00:48:35\n  host      : n1\n  \
               rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 5537)  (SIGKILL)\n  error_file: <N/A>\n  \
               traceback : Signal 9 (SIGKILL) received by PID 5537\n";
    let cases = diagnose(&[("rank-0.err", log)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["killed-by-signal"], "rank 1 of node n1"),
        "{:?}",
        cases[0].reasoning
    );
    assert!(
        has_reason(&cases[0], &["5537", "local rank 1", "SIGKILL", "first"]),
        "{:?}",
        cases[0].reasoning
    );
}
