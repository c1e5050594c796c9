//! Alarms that ended no run: what the run did afterwards, who serves on, and what a line only quotes.

use crate::folders::{diagnose, group};

/// Returns the classes of all cases.
fn classes(files: &[(&str, &str)]) -> Vec<String> {
    diagnose(files).into_iter().map(|case| case.class).collect()
}

/// Returns the reports that ended no run, in words.
fn reports(files: &[(&str, &str)]) -> Vec<String> {
    group(files).reports.iter().map(ToString::to_string).collect()
}

const WORK: &str = "\
2026-05-03T08:00:00Z step 400 loss 1.31
2026-05-03T08:20:00Z step 500 loss 1.27
2026-05-03T08:40:00Z step 600 loss 1.22
";

const STOPPED: &str = "\
2026-05-03T08:00:00Z step 400 loss 1.31
2026-05-03T08:09:58Z step 450 loss 1.29
2026-05-03T08:40:00Z [rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
";

#[test]
fn a_report_of_a_machine_beside_a_run_that_worked_on_is_no_case() {
    let idle = "2026-05-03T08:10:00+00:00 q2 kernel: libceph: osd7 (1)10.4.0.9:6803 socket closed (con state OPEN)\n";
    let killed = "2026-05-03T08:10:00+00:00 q2 kernel: Out of memory: Killed process 7711 (notebook) total-vm:991kB, anon-rss:880kB, file-rss:0kB, shmem-rss:0kB, UID:1004 pgtables:90kB oom_score_adj:0\n";
    for line in [idle, killed] {
        let files = [("rank0.log", WORK), ("q2.kern.log", line)];
        assert!(classes(&files).is_empty(), "{line}");
        assert!(
            reports(&files)[0].contains("work long after it"),
            "{:?}",
            reports(&files)
        );
        // A run that failed, or of which nothing is known, is another matter.
        assert!(
            !classes(&[("rank0.log", STOPPED), ("q2.kern.log", line)]).is_empty(),
            "{line}"
        );
        assert!(!classes(&[("q2.kern.log", line)]).is_empty(), "{line}");
    }
}

#[test]
fn a_fault_of_hardware_beside_a_run_that_worked_on_does_not_end_ranks() {
    let lost = "2026-05-03T08:10:00+00:00 q2 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n";
    let cases = diagnose(&[("rank0.log", WORK), ("q2.kern.log", lost)]);
    assert_eq!(cases[0].class, "gpu-fallen-off-bus");
    let worn = "2026-05-03T08:10:00+00:00 q2 kernel: NVRM: Xid (PCI:0000:3b:00): 63, pid=77, name=python3, Row Remapper: New row marked for remapping, reset gpu to activate.\n";
    assert_eq!(
        classes(&[("rank0.log", WORK), ("q2.kern.log", worn)]),
        ["gpu-row-remap-pending"]
    );
    let text = cases[0].reasoning.join("\n");
    assert!(text.contains("the run worked on beside it"), "{text}");
    assert!(!text.contains("would end ranks"), "{text}");
}

#[test]
fn a_late_command_of_a_disk_that_needs_no_reset_is_no_case() {
    let late = "2026-05-03T08:10:00+00:00 q2 kernel: nvme nvme3: I/O tag 77 (104d) opcode 0x2 (I/O Cmd) QID 9 timeout, aborting req_op:READ(0) size:131072\n";
    let aborted = format!("{late}2026-05-03T08:10:01+00:00 q2 kernel: nvme nvme3: Abort status: 0x0\n");
    let polled =
        "2026-05-03T08:10:00+00:00 q2 kernel: nvme nvme3: I/O tag 77 (104d) QID 9 timeout, completion polled\n";
    assert!(classes(&[("q2.kern.log", polled)]).is_empty());
    assert!(classes(&[("q2.kern.log", &aborted)]).is_empty());
    assert!(reports(&[("q2.kern.log", &aborted)])[0].contains("without a reset"));
    let reset = format!(
        "{late}2026-05-03T08:10:31+00:00 q2 kernel: nvme nvme3: I/O tag 77 (104d) QID 9 timeout, reset controller\n"
    );
    let late_again = format!("{aborted}{}", reset.replace(late, ""));
    for log in [late, reset.as_str(), late_again.as_str()] {
        assert_eq!(classes(&[("q2.kern.log", log)]), ["local-disk-fault"], "{log}");
    }
    let error = format!(
        "{aborted}2026-05-03T08:10:01+00:00 q2 kernel: I/O error, dev nvme3n1, sector 88112 op 0x0:(READ) flags 0x80700\n"
    );
    assert!(!classes(&[("q2.kern.log", &error)]).is_empty());
}

#[test]
fn a_bond_with_another_interface_serves_on() {
    let down =
        "2026-05-03T08:10:00+00:00 q2 kernel: bond1: (slave ens5f0): link status definitely down, disabling slave\n";
    let taken = format!(
        "{down}2026-05-03T08:10:00+00:00 q2 kernel: bond1: (slave ens5f1): making interface the new active one\n"
    );
    assert!(classes(&[("q2.kern.log", &taken)]).is_empty());
    assert!(reports(&[("q2.kern.log", &taken)])[0].contains("took over"));
    let cases = diagnose(&[("q2.kern.log", down)]);
    assert_eq!(cases[0].blamed, "nic ens5f0 of node q2", "{cases:?}");
    let none = format!("{down}2026-05-03T08:10:00+00:00 q2 kernel: bond1: now running without any active interface!\n");
    assert!(!classes(&[("q2.kern.log", &none)]).is_empty());
    let other = taken.replace("bond1: (slave ens5f1)", "bond2: (slave ens6f1)");
    assert!(!classes(&[("q2.kern.log", &other)]).is_empty());
}

#[test]
fn a_corrected_error_that_fills_a_record_of_the_controller_is_a_fact() {
    let head = "2026-05-03T08:10:00+00:00 q2 kernel: EDAC skx MC1: HANDLING MCE MEMORY ERROR\n";
    let body: String = [
        "CPU 4: Machine Check Event: 0x0 Bank 13: 0x8c00004000010090",
        "TSC 0x91",
        "ADDR 0x31f00",
        "MISC 0x2086",
        "PROCESSOR 0:0x50657 TIME 1777795800 SOCKET 0 APIC 0x8",
    ]
    .iter()
    .map(|line| format!("2026-05-03T08:10:00+00:00 q2 kernel: EDAC skx MC1: {line}\n"))
    .collect();
    let named = |kind: &str| {
        format!(
            "{head}{body}2026-05-03T08:10:00+00:00 q2 kernel: EDAC MC1: 1 {kind} memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#1 (channel:0 slot:1 page:0x31f offset:0x0 grain:32 syndrome:0x0)\n"
        )
    };
    assert!(classes(&[("q2.kern.log", &named("CE"))]).is_empty());
    assert_eq!(classes(&[("q2.kern.log", &named("UE"))]), ["host-memory-fault"]);
}

#[test]
fn a_start_that_was_retried_until_the_ranks_met_is_no_case() {
    let sought = "[W503 08:00:01.100000000 socket.cpp:697] [c10d] The client socket has failed to connect to [q1]:29544 (errno: 111 - Connection refused).\n";
    let met = format!(
        "{sought}2026-05-03 08:00:09 all 8 ranks joined\n2026-05-03 08:10:09 step 40\n2026-05-03 08:20:09 step 80\n"
    );
    assert!(classes(&[("job.log", &met)]).is_empty());
    assert_eq!(classes(&[("job.log", sought)]), ["rendezvous-failure"]);
    let again = format!("{met}{}", sought.replace("08:00:01", "08:40:01"));
    assert_eq!(classes(&[("job.log", &again)]), ["rendezvous-failure"]);
    let before = format!("2026-05-03 07:50:09 step 40\n{sought}");
    assert_eq!(classes(&[("job.log", &before)]), ["rendezvous-failure"]);
}

#[test]
fn a_pod_that_started_had_its_volumes_and_its_sandbox() {
    let mount = "2026-05-03T08:00:00Z   Warning   FailedMount   pod/llm-3   MountVolume.SetUp failed for volume \"tokens\" : secret \"hub-token\" not found\n";
    let sandbox = "2026-05-03T08:00:00Z   Warning   FailedCreatePodSandBox   pod/llm-3   Failed to create pod sandbox: rpc error: code = Unknown desc = plugin type=\"sriov\" failed (add)\n";
    for failed in [mount, sandbox] {
        let own = format!("{failed}2026-05-03T08:00:41Z   Normal   Started   pod/llm-3   Started container trainer\n");
        assert!(classes(&[("events.log", &own)]).is_empty(), "{own}");
        let other = own.replace("Started   pod/llm-3", "Started   pod/llm-4");
        assert_eq!(classes(&[("events.log", &other)]).len(), 1, "{other}");
    }
}

#[test]
fn a_run_whose_trainer_prints_its_metrics_ended_well() {
    let alarm = "2026-05-03 08:00:05 CUDA out of memory. Tried to allocate 3.50 GiB; next try with a batch of 12\n";
    let ended = format!(
        "{alarm}2026-05-03 08:00:09 batch of 12 fits\n2026-05-03 09:31:00 ***** train metrics *****\n2026-05-03 09:31:00   train_loss               =     1.9021\n2026-05-03 09:31:00   train_runtime            = 1:30:41.07\n"
    );
    assert!(classes(&[("job.log", &ended)]).is_empty());
    assert_eq!(classes(&[("job.log", alarm)]), ["cuda-oom"]);
}

#[test]
fn a_session_of_tests_that_passed_has_no_failure() {
    let lines = |result: &str, summary: &str| {
        format!(
            "tests/test_io.py::test_reads_old_shards PASSED [ 33%]\ntests/test_io.py::test_full_disk {result} (OSError: [Errno 28] No space left on device)\n=================== {summary} in 4.77s ===================\n"
        )
    };
    assert!(classes(&[("job.log", &lines("XFAIL", "1 passed, 1 xfailed"))]).is_empty());
    assert_eq!(
        classes(&[("job.log", &lines("FAILED", "1 failed, 1 passed"))]),
        ["disk-full"]
    );
    let cut = "tests/test_io.py::test_full_disk XFAIL (OSError: [Errno 28] No space left on device)\n";
    assert!(classes(&[("job.log", cut)]).is_empty());
}

#[test]
fn a_text_that_a_working_run_quotes_is_no_failure() {
    let quoted = "2026-05-03 08:00:00 step 400 loss 1.31\n2026-05-03 08:00:01 generated: \"Q: what does 'No space left on device' mean? A: OSError: [Errno 28] No space left on device names a full disk.\"\n";
    let went_on = format!("{quoted}2026-05-03 08:10:00 step 500 loss 1.29\n2026-05-03 08:20:00 step 600 loss 1.27\n");
    assert!(classes(&[("job.log", &went_on)]).is_empty());
    let sample = went_on
        .replace("generated: \"Q: what", "generated: 'what")
        .replace("'No space left on device'", "it")
        .replace("disk.\"", "disk.'");
    assert!(classes(&[("job.log", &sample)]).is_empty(), "{sample}");
    let own = went_on.replace("generated: \"Q", "Q").replace("disk.\"", "disk.");
    assert_eq!(classes(&[("job.log", &own)]), ["disk-full"]);
    let last = "2026-05-03 08:00:00 step 400 loss 1.31\n2026-05-03 08:00:01 level=error msg=\"save failed: OSError: [Errno 28] No space left on device\"\n";
    let others = "2026-05-03 08:10:00 step 500 loss 1.29\n2026-05-03 08:20:00 step 600 loss 1.27\n";
    for log in [last.to_owned(), format!("{last}{others}")] {
        assert_eq!(classes(&[("job.log", &log)]), ["disk-full"], "{log}");
    }
}

#[test]
fn the_description_of_an_option_is_no_failure() {
    let help = "usage: pretrain.py [-h] [--on-full-disk {stop,wait}]\n\noptions:\n  -h, --help            show this help message and exit\n  --on-full-disk {stop,wait}  what to do on \"No space left on device\" (default: stop)\n";
    assert!(classes(&[("job.log", help)]).is_empty());
    let real = "pretrain.py --on-full-disk stop\nOSError: [Errno 28] No space left on device\n";
    assert_eq!(classes(&[("job.log", real)]), ["disk-full"]);
}

#[test]
fn a_large_loss_that_was_recomputed_is_no_failure_of_a_run_that_ended() {
    let log = "[default5]:WARNING:megatron.core.rerun_state_machine:Unexpected result 48.2 on rank 5 at iteration #310 invocation #1 (message='loss spike')\n\
               [default5]: iteration      311/     600 | lm loss: 2.41E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n";
    let ended = format!(
        "{log}[default5]: iteration      600/     600 | lm loss: 2.02E+00 | number of nan iterations:   0 |\n[after training is done] datetime: 2026-05-03 09:00:00\n"
    );
    assert!(classes(&[("job.log", &ended)]).is_empty());
    let spoiled = log.replace("lm loss: 2.41E+00", "lm loss: nan");
    assert!(!classes(&[("job.log", &spoiled)]).is_empty());
}

#[test]
fn an_end_that_a_run_survived_is_reported() {
    let node = "2026-05-03 08:00:00 step 40 loss 2.0\nslurmstepd: error: *** JOB 88 ON q5 CANCELLED AT 2026-05-03T08:10:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n2026-05-03 09:00:00 step 50 loss 1.9\n2026-05-03 10:00:00 step 600 loss 1.2\n2026-05-03 10:00:01 Training finished successfully.\n";
    let files = [("slurm-88.out", node)];
    assert!(classes(&files).is_empty());
    let found = reports(&files);
    assert!(
        found.len() == 1 && found[0].contains("slurm-node-fail") && found[0].contains("ON q5"),
        "{found:?}"
    );
    let rank = "2026-05-03 08:00:00 step 40 loss 2.0\nE0503 08:10:08.100000 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 1 (pid: 82) of binary: /usr/bin/python3\nI0503 08:10:10.100000 71 torch/distributed/elastic/agent/server/api.py:900] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n2026-05-03 09:00:00 step 50 loss 1.9\nI0503 10:00:10.100000 71 torch/distributed/elastic/agent/server/api.py:870] [default] worker group successfully finished. Waiting 300 seconds for other agents to finish.\n";
    let files = [("job.log", rank)];
    assert!(classes(&files).is_empty());
    assert!(reports(&files)[0].contains("exitcode: -6"), "{:?}", reports(&files));
    let group = rank.replace("E0503 08:10:08.100000 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 1 (pid: 82) of binary: /usr/bin/python3\n", "");
    let files = [("job.log", group.as_str())];
    assert!(
        reports(&files)[0].contains("Worker group FAILED"),
        "{:?}",
        reports(&files)
    );
    // What ends after a success ended because of it.
    let after = "2026-05-03 08:00:00 step 40 loss 2.0\n2026-05-03 10:00:01 Training finished successfully.\nW0503 10:00:03.100000 71 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 82 closing signal SIGTERM\n";
    assert!(reports(&[("job.log", after)]).is_empty());
}

#[test]
fn one_preemption_that_a_run_survived_is_no_case_whatever_it_names() {
    for reason in ["PREEMPTION", "TIME LIMIT"] {
        let stop = |at: &str| {
            format!(
                "slurmstepd: error: *** JOB 77 ON q5 CANCELLED AT 2026-05-03T{at} DUE TO {reason} ***\nslurmstepd: error: *** STEP \
                 77.0 ON q5 CANCELLED AT 2026-05-03T{at} DUE TO {reason} ***\n"
            )
        };
        let first = stop("08:10:00");
        let second = stop("09:10:00");
        let work = "0: 2026-05-03 09:00:00 resume: loaded /ck/40\n0: 2026-05-03 09:05:00 step 50 loss 1.9\n";
        let end = "0: 2026-05-03 09:50:00 resume: loaded /ck/50\n0: 2026-05-03 10:00:00 step 600 loss 1.2\n0: 2026-05-03 10:00:01 \
                   training finished\n";
        let log = format!("0: 2026-05-03 08:00:00 step 40 loss 2.0\n{first}{work}{second}{end}");
        assert!(classes(&[("slurm-77.out", &log)]).is_empty(), "{reason}");
        assert!(
            reports(&[("slurm-77.out", &log)])[0].contains("the run went on after it"),
            "{reason}"
        );
        // The last one ended the run.
        let log = format!("0: 2026-05-03 08:00:00 step 40 loss 2.0\n{first}{work}{second}");
        assert_eq!(classes(&[("slurm-77.out", &log)]).len(), 1, "{reason}");
    }
}
