//! Folders of logs: attempts, notices, boots, requeues, tables of launchers, senders of signals, and logs that just end.

use rankguard_model::{NodeId, Rank};
use rankguard_offline::OfflineCase;

use crate::folders::{diagnose, group};

fn classes(cases: &[OfflineCase]) -> Vec<&str> {
    cases.iter().map(|case| case.class.as_str()).collect()
}

fn has_reason(case: &OfflineCase, parts: &[&str]) -> bool {
    let mut reasons = case.reasoning.iter();
    reasons.any(|reason| parts.iter().all(|part| reason.contains(part)))
}

/// Returns lines of work of a rank, one a minute from ten o'clock.
fn work(minutes: u32) -> String {
    let minutes = 0..minutes;
    minutes
        .map(|minute| format!("2026-05-02 10:{minute:02}:05,120 INFO step {minute} loss 2.3\n"))
        .collect()
}

const LOST: &str = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer \
                    [10.0.0.2]:41211";

fn traceback(message: &str) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"/srv/train.py\", line 9, in <module>\n    main()\n{message}\n"
    )
}

#[test]
fn a_failure_of_a_later_attempt_is_a_case_of_its_own() {
    let memory = traceback(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79 GiB",
    );
    let key = traceback("wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[key])");
    let log = format!(
        "2026-05-02 07:59:03,120 INFO step 100 loss 2.2\n{memory}2026-05-02 08:59:00,100 INFO start, batch size 32\n{key}"
    );
    let cases = diagnose(&[("train.log", &log)]);
    assert_eq!(classes(&cases), ["cuda-oom", "config-error"]);
    assert!(
        has_reason(&cases[0], &["another attempt", "line 6"]),
        "{:?}",
        cases[0].reasoning
    );
    // Without a start below the pause the second failure may follow from the first.
    let log = format!(
        "2026-05-02 07:59:03,120 INFO step 100 loss 2.2\n{memory}2026-05-02 08:59:00,100 ERROR no batch for 3600 s\n{key}"
    );
    assert_eq!(diagnose(&[("train.log", &log)]).len(), 1);
}

#[test]
fn a_log_with_the_steps_of_a_rank_is_open_and_a_warning_of_wandb_is_no_work() {
    let steps: String = (0..5).map(|step| format!("rank 0 step {step}\n")).collect();
    let found = group(&[("rank-0.log", &steps)]);
    assert!(found.cases.is_empty() && found.open_ends.len() == 1, "{found:?}");
    assert_eq!(
        (found.open_ends[0].line, found.open_ends[0].text.as_str()),
        (5, "rank 0 step 4")
    );
    let warned = "2024-12-08,22:10:14 | INFO | Train Epoch: 14 [41/14656] Loss: 3.6008 (3.656) LR: 0.000041\nwandb: WARNING (User \
                  provided step: 205224 is less than current step: 205528. Dropping entry: {'train/loss': 3.6, 'step': 205224}).\n";
    let found = group(&[("run.log", warned)]);
    assert_eq!(found.open_ends[0].line, 1, "{found:?}");
}

#[test]
fn logs_that_just_end_are_named() {
    let found = group(&[("rank-0.log", &work(5)), ("rank-1.log", &work(4))]);
    assert!(found.cases.is_empty());
    let ends: Vec<_> = found
        .open_ends
        .iter()
        .map(|end| (end.file.as_str(), end.line))
        .collect();
    assert_eq!(ends, [("rank-0.log", 5), ("rank-1.log", 4)]);
    let text = found.open_ends[0].to_string();
    assert!(
        text.contains("10:04:05.120Z") && text.contains("does not state how the run ended"),
        "{text}"
    );
    for end in [
        "2026-05-02 10:30:00,000 INFO Training completed successfully\n",
        "Epoch 3/3: loss 0.4\n",
        "100%|##########| 10/10 [00:10<00:00,  1.00it/s]\n",
    ] {
        let found = group(&[("rank-0.log", &format!("{}{end}", work(5)))]);
        assert!(
            found.cases.is_empty() && found.open_ends.is_empty(),
            "{end}: {:?}",
            found.open_ends
        );
    }
    // The end of the job is that of all its ranks.
    let job = format!(
        "{}2026-05-02 10:30:00,000 INFO Training completed successfully\n",
        work(5)
    );
    assert!(
        group(&[("slurm-7.out", &job), ("rank-1.log", &work(4))])
            .open_ends
            .is_empty()
    );
}

#[test]
fn the_end_at_the_announced_second_follows_from_the_notice() {
    let stop = format!("{}2026-05-02 10:02:00,900 WARNING received SIGTERM\n", work(1));
    let aws = "2026/05/02 10:00:00 INF Adding new event to the event store event={\"Kind\":\"SPOT_ITN\",\"Description\":\"Spot ITN \
               received. Instance will be interrupted at 2026-05-02T10:02:00Z \\n\"}\n";
    let azure = "2026-05-02T09:59:00Z Warning Preempt node/aks7 Node 'aks7' will change into status 'Preempt' [Not before: \
                 'Sat, 02 May 2026 10:02:00 GMT']\n";
    for notice in [aws, azure] {
        let cases = diagnose(&[("notices.log", notice), ("rank-8.log", &stop)]);
        assert_eq!(classes(&cases), ["preempted"], "{notice}");
        assert!(
            has_reason(&cases[0], &["external-termination", "follows from it"]),
            "{:?}",
            cases[0].reasoning
        );
    }
    // A failure long after the announced end is another one.
    let late = format!("{}2026-05-02 10:31:00,900 ERROR KeyError: 'lr'\n", work(30));
    assert_eq!(diagnose(&[("notices.log", aws), ("rank-8.log", &late)]).len(), 2);
}

#[test]
fn a_boot_without_a_shutdown_explains_the_lost_peer() {
    let before = "2026-05-02T10:01:50.000000+00:00 c2 systemd[1]: Started session-91.scope.\n";
    let boot = "2026-05-02T10:05:12.000000+00:00 c2 kernel: Linux version 6.8.0-45-generic (buildd@x) #45-Ubuntu SMP\n\
                2026-05-02T10:05:13.000000+00:00 c2 systemd[1]: systemd 255.4 running in system mode\n";
    let rank = format!("{}2026-05-02 10:02:10,100 ERROR {LOST}\n", work(2));
    let cases = diagnose(&[("c2/syslog", &format!("{before}{boot}")), ("c1/rank-0.log", &rank)]);
    assert_eq!(classes(&cases), ["node-crash"]);
    assert_eq!(cases[0].blamed, "node c2");
    assert!(
        has_reason(&cases[0], &["remote-worker-lost", "follows from it"]),
        "{:?}",
        cases[0].reasoning
    );
    assert!(has_reason(
        &cases[0],
        &["no line from 2026-05-02T10:01:50.000Z", "no shutdown"]
    ));
    for end in [
        "systemd[1]: Reached target Shutdown.",
        "rsyslogd: [origin software=\"rsyslogd\"] exiting on signal 15.",
    ] {
        let log = format!("{before}2026-05-02T10:02:01.000000+00:00 c2 {end}\n{boot}");
        let cases = diagnose(&[("c2/syslog", &log), ("c1/rank-0.log", &rank)]);
        assert!(!classes(&cases).contains(&"node-crash"), "{end}: {:?}", classes(&cases));
    }
}

#[test]
fn a_requeued_job_starts_again_by_itself() {
    let requeue = "slurmstepd: error: *** JOB 81 ON c1 CANCELLED AT 2026-05-02T10:04:22 DUE TO JOB REQUEUE ***\n";
    let cases = diagnose(&[("slurm-81.out", &format!("{}{requeue}", work(4)))]);
    assert_eq!(classes(&cases), ["external-termination"]);
    assert_eq!(cases[0].action, "none");
    assert!(has_reason(&cases[0], &["Slurm states that it queued the job again"]));
    // The job itself asked for it.
    for request in [
        "2026-05-02 10:04:10,100 INFO SIGTERM received, saving checkpoint\n2026-05-02 10:04:20,100 INFO checkpoint saved, \
         requesting requeue\n",
        "submitit INFO (2026-05-02 10:04:11,100) - Requeuing job 81 (1 remaining timeouts)\n",
    ] {
        let found = group(&[("slurm-81.out", &format!("{}{request}{requeue}", work(4)))]);
        assert!(found.cases.is_empty(), "{request}: {:?}", classes(&found.cases));
        let notes: Vec<String> = found.reports.iter().map(ToString::to_string).collect();
        assert!(
            notes.iter().any(|note| note.contains("asked for a requeue")),
            "{notes:?}"
        );
        assert!(found.open_ends.is_empty());
    }
}

/// Returns a row of torchrun's table.
fn row(index: u32, second: u32, rank: u32, exit: i32, trace: &str) -> String {
    format!(
        "[{index}]:\n  time      : 2026-05-02_10:00:{second:02}\n  host      : c1\n  rank      : {rank} (local_rank: {})\n  \
         exitcode  : {exit} (pid: {})\n  error_file: <N/A>\n  traceback : {trace}\n",
        rank - 4,
        600 + rank
    )
}

const NO_TRACE: &str = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

fn table(reported: (i32, u32), later: &str, first: &str) -> String {
    let (exit, rank) = reported;
    format!(
        "2026-05-02 10:00:10,302 ERROR torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {exit}) \
         local_rank: {} (pid: {}) of binary: /opt/venv/bin/python3\n\
         torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n\
         ============================================================\nFailures:\n{later}\
         ------------------------------------------------------------\nRoot Cause (first observed failure):\n{first}",
        rank - 4,
        600 + rank
    )
}

#[test]
fn a_table_of_two_failed_workers_blames_the_first() {
    let abort = row(0, 4, 6, -6, "Signal 6 (SIGABRT) received by PID 606");
    let log = table((-6, 6), &row(1, 9, 7, 1, NO_TRACE), &abort);
    let cases = diagnose(&[("torchrun.log", &log)]);
    assert_eq!(classes(&cases), ["process-aborted"]);
    assert_eq!(
        (cases[0].blamed.as_str(), cases[0].root_rank),
        ("rank 6 of node c1", Some(Rank(6)))
    );
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-05-02T10:00:04.000Z"));
    // The first ended with an exit code, and the abort is the later one.
    let later = row(1, 9, 7, -6, "Signal 6 (SIGABRT) received by PID 607");
    let cases = diagnose(&[("torchrun.log", &table((1, 6), &later, &row(0, 4, 6, 1, NO_TRACE)))]);
    assert_eq!(
        (classes(&cases), cases[0].root_rank),
        (vec!["launcher-child-failed"], Some(Rank(6)))
    );
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-05-02T10:00:04.000Z"));
}

#[test]
fn launchers_and_clusters_name_the_lost_part() {
    let daemon = format!(
        "{}PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-c1-99@0,0] on node c1\n  Remote \
         daemon: [prterun-c1-99@0,1] on node c4\n",
        work(3)
    );
    let ssh = "c4: ssh: connect to host c4 port 22: Connection timed out\npdsh@c1: c4: ssh exited with exit code 255\n";
    for log in [daemon.as_str(), ssh] {
        let cases = diagnose(&[("job.out", log)]);
        assert_eq!(cases[0].blamed, "node c4", "{log}");
        assert_eq!(cases[0].root_node, Some(NodeId::from("c4")));
    }
    // A program that copies code reaches a host outside the cluster.
    let other = "ssh: connect to host git7.example.com port 22: Connection refused\n";
    assert_eq!(diagnose(&[("train.log", other)])[0].blamed, "the job");
    let described = "Name:         train-2\nNode:         c5/10.0.0.5\n    State:          Terminated\n      Reason:       \
                     OOMKilled\n      Exit Code:    137\n      Started:      Sat, 02 May 2026 08:00:00 +0000\n      Finished:     \
                     Sat, 02 May 2026 09:00:00 +0000\n";
    let cases = diagnose(&[("describe.txt", described)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["container-oom-kill"], "pod train-2 of node c5")
    );
    let event = "12m   Warning   Evicted   pod/train-2   The node was low on resource: ephemeral-storage. Container pytorch was \
                 using 91Gi, request is 0.\n";
    let cases = diagnose(&[
        ("events.txt", event),
        ("describe.txt", "Name:         train-2\nNode:         c5/10.0.0.5\n"),
    ]);
    assert!(cases[0].blamed.starts_with("pod train-2"), "{}", cases[0].blamed);
    assert!(has_reason(&cases[0], &["The blame is on pod train-2"]));
}

#[test]
fn the_sender_of_a_signal_is_named() {
    let ended = "2026-05-02 10:00:02,302 ERROR torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) \
                 local_rank: 3 (pid: 777) of binary: /opt/venv/bin/python3\n";
    let command = |pid: u32| {
        format!(
            "2026-05-02T10:00:01+00:00 c2 sudo:      eve : TTY=pts/1 ; PWD=/home/eve ; USER=root ; COMMAND=/usr/bin/kill -9 {pid}\n"
        )
    };
    let unit = "2026-05-02T10:00:01+00:00 c2 systemd[1]: session-91.scope: Killing process 777 (python3) with signal SIGKILL.\n";
    for (sender, name) in [(command(777), "The user eve"), (unit.to_owned(), "systemd")] {
        let cases = diagnose(&[("c2/auth.log", &sender), ("c2/torchrun.log", ended)]);
        assert_eq!(classes(&cases), ["external-termination"], "{sender}");
        assert!(
            has_reason(&cases[0], &[name, "SIGKILL to process 777"]),
            "{:?}",
            cases[0].reasoning
        );
        assert_eq!(
            cases[0].root_rank, None,
            "local rank 3 of one of several nodes is no rank of the job"
        );
    }
    // The signal was for another process, so its sender is not known.
    let cases = diagnose(&[("c2/auth.log", &command(900)), ("c2/torchrun.log", ended)]);
    assert!(!has_reason(&cases[0], &["eve"]), "{:?}", cases[0].reasoning);
    assert!(diagnose(&[("c2/auth.log", &command(900))]).is_empty());
}

#[test]
fn each_of_two_kills_has_the_report_of_its_own_launcher() {
    let kill = |node: u32, pid: u32| {
        format!(
            "2026-05-02T10:00:1{node}+00:00 c{node} kernel: Out of memory: Killed process {pid} (python3) total-vm:90123348kB, anon-rss:63123456kB, file-rss:1204kB, shmem-rss:65536kB\n"
        )
    };
    let ended = |node: u32, pid: u32| {
        format!(
            "2026-05-02 10:00:1{},302 ERROR torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 0 (pid: {pid}) of binary: python3\n",
            node + 2
        )
    };
    for pids in [[100, 200], [500, 500]] {
        let [one, other] = pids;
        let cases = diagnose(&[
            ("c1/kern.log", &kill(1, one)),
            ("c1/torchrun.log", &ended(1, one)),
            ("c2/kern.log", &kill(2, other)),
            ("c2/torchrun.log", &ended(2, other)),
        ]);
        assert_eq!(classes(&cases), ["host-oom-kill", "host-oom-kill"], "{pids:?}");
        for (case, node) in cases.iter().zip(["c1", "c2"]) {
            assert_eq!(case.blamed, format!("node {node}"));
            let mut files = case.key_lines.iter().map(|line| line.file.as_str());
            assert!(
                files.all(|file| file.starts_with(node)),
                "{pids:?}: {:?}",
                case.key_lines
            );
        }
    }
}

#[test]
fn own_errors_of_two_ranks_are_two_cases() {
    let first = format!(
        "{}2026-05-02 10:01:01,000 ERROR failed\n{}",
        work(1),
        traceback("ValueError: bad lr")
    );
    let missing = traceback("FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'");
    let later = format!("{}2026-05-02 10:01:01,300 ERROR failed\n{missing}", work(1));
    let cases = diagnose(&[("c1/rank-0.log", &first), ("c2/rank-1.log", &later)]);
    assert_eq!(classes(&cases), ["file-not-found", "python-value-error"]);
    assert!(
        has_reason(&cases[0], &["python-value-error", "a fault of its own"]),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn a_report_of_a_missing_rank_is_of_the_rank_that_waited() {
    let log = format!(
        "{}[rank0]: RuntimeError: [Rank 0]: Ranks 5 failed to pass monitoredBarrier in 30000 ms\n",
        work(2)
    );
    let cases = diagnose(&[("rank-0.log", &log)]);
    assert_eq!(
        (classes(&cases), cases[0].blamed.as_str()),
        (vec!["hang-stalled-ranks"], "rank 5")
    );
    assert!(
        has_reason(&cases[0], &["the log of rank 0 says"]),
        "{:?}",
        cases[0].reasoning
    );
}

#[test]
fn a_killed_task_is_blamed_with_its_node() {
    let log = format!(
        "{}srun: error: c4: task 24: Killed\nsrun: error: c1: tasks 0-7: Terminated\n",
        work(2)
    );
    let cases = diagnose(&[("slurm-9.out", &log)]);
    assert_eq!(
        (cases[0].blamed.as_str(), cases[0].root_rank),
        ("rank 24 of node c4", Some(Rank(24)))
    );
}

#[test]
fn a_message_is_counted_once() {
    let log = "2026-05-02 10:00:01,101 WARNING torch/distributed/elastic/agent/server/api.py:723] Received 1 death signal, shutting \
               down workers\n2026-05-02 10:00:01,103 WARNING torch/distributed/elastic/multiprocessing/api.py:897] Sending process \
               810 closing signal SIGHUP\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 700 got signal: 1\n";
    let cases = diagnose(&[("out.log", log)]);
    let counted = cases[0]
        .reasoning
        .iter()
        .filter(|reason| reason.contains("the launcher reports"))
        .count();
    assert_eq!(counted, 1, "{:?}", cases[0].reasoning);
}

#[test]
fn a_name_is_not_resolved_since_the_first_family_of_addresses() {
    let family = |second: u32, family: u32| {
        format!(
            "2026-05-02 10:00:0{second},100 WARNING [c10d] The IPv{family} network addresses of (c1.cluster, 29500) cannot be retrieved (gai error: -2 - Name or service not known).\n"
        )
    };
    let end = "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (c1.cluster, 29500).\n";
    let cases = diagnose(&[("c2/rank-1.log", &format!("{}{}{end}", family(1, 6), family(3, 4)))]);
    assert_eq!(classes(&cases), ["dns-failure"]);
    assert_eq!(cases[0].first_at.as_deref(), Some("2026-05-02T10:00:01.100Z"));
}

#[test]
fn a_text_of_a_kernel_in_the_log_of_a_run_is_no_end_of_it() {
    for quoted in [
        "INFO eval sample: [ 712.1] Out of memory: Killed process 4242 (python3) total-vm:901kB",
        "INFO sample 3: \"RuntimeError: CUDA out of memory\" she whispered, and the kernel panicked.",
        "INFO generated: \"slurmstepd: error: Detected 1 oom_kill event in StepId=4.0\" and then some",
    ] {
        let log = format!(
            "2026-05-02 09:59:00,000 {quoted}\n{}2026-05-02 10:59:00,100 INFO training completed\n",
            work(20)
        );
        let found = group(&[("rank-0.log", &log)]);
        assert!(
            found.cases.is_empty() && found.reports.is_empty(),
            "{quoted}: {:?}",
            found.reports
        );
    }
}
