//! Parts that ranks, launchers and clients only report: file systems, credentials, senders of signals.

use rankguard_model::Rank;
use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

fn only(logs: &[(&str, &str)]) -> OfflineCase {
    let mut cases = diagnose(logs);
    assert_eq!(cases.len(), 1, "{cases:#?}");
    cases.remove(0)
}

fn has_reason(case: &OfflineCase, part: &str) -> bool {
    case.reasoning.iter().any(|reason| reason.contains(part))
}

#[test]
fn a_rank_that_finds_a_file_system_full_is_not_to_blame() {
    let raised = "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/srv/train.py\", line 88, in save\n\
                  [rank3]:     torch.save(state, path)\n\
                  [rank3]: OSError: [Errno 28] No space left on device: '/ckpt/step500/rank3.pt'\n";
    let case = only(&[("train.log", raised)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str(), case.root_rank),
        ("disk-full", "the file system of /ckpt/step500/rank3.pt", None)
    );
    assert!(has_reason(&case, "Rank 3 reports it"), "{:?}", case.reasoning);
    let case = only(&[(
        "n1/rank0.log",
        "OSError: [Errno 28] No space left on device: '/ckpt/a.pt'\n",
    )]);
    assert_eq!(case.blamed, "the file system of /ckpt/a.pt");
    assert!(!has_reason(&case, "Only node"), "{:?}", case.reasoning);
}

#[test]
fn credentials_that_a_service_refuses_are_those_of_the_job() {
    for error in [
        "botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling the PutObject operation: The provided \
         token has expired.",
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        "google.auth.exceptions.DefaultCredentialsError: Could not automatically determine credentials.",
    ] {
        let case = only(&[("train.log", &format!("step 5 loss 2.3\n[rank0]: {error}\n"))]);
        assert_eq!(
            (case.blamed.as_str(), case.root_rank),
            ("the credentials of the job", None),
            "{error}"
        );
    }
}

#[test]
fn a_kill_that_a_launcher_reports_has_an_unknown_sender() {
    let torchrun = "E1130 10:00:06.000000 1234 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) \
                    local_rank: 2 (pid: 1302) of binary: /usr/bin/python3\n\
                    Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-30_10:00:06\n  host      : n1\n  \
                    rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 1302)\n  error_file: <N/A>\n  traceback : Signal 9 \
                    (SIGKILL) received by PID 1302\n";
    let case = only(&[("torchrun.log", torchrun)]);
    assert_eq!(
        (case.class.as_str(), case.layer.as_str(), case.root_rank),
        ("killed-by-signal", "unknown", Some(Rank(2)))
    );
    let mut others = case.alternatives.iter().map(|other| other.class.as_str());
    assert!(others.any(|class| class == "host-oom-kill"), "{:?}", case.alternatives);
    let kernel = "2026-11-30T10:00:05.000000+00:00 n1 kernel: Out of memory: Killed process 1302 (python3) \
                  total-vm:900000kB, anon-rss:800000kB\n";
    let cases = diagnose(&[("n1/kern.log", kernel), ("torchrun.log", torchrun)]);
    assert_eq!(cases[0].class, "host-oom-kill");
}

#[test]
fn ranks_that_lag_behind_in_a_report_of_nccl_are_stalled() {
    let table = "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    0         1         4         8        \
                 32        32   RUNNING  MISMATCH\n\nWarnings\n========\n\n";
    for what in ["collective", "AllReduce"] {
        let log = format!(
            "{table}#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different {what} operation counts\n  26 ranks \
             have launched up to operation 6650\n  6 ranks have launched up to operation 6649\n"
        );
        assert_eq!(only(&[("ras.log", &log)]).class, "hang-stalled-ranks", "{what}");
    }
}

#[test]
fn steps_that_slurm_could_not_launch_are_named() {
    for (lines, class) in [
        (
            "srun: error: Task launch for 2332.5 failed on node q1f1: Transport endpoint is not connected\nsrun: error: \
             Application launch failed: Transport endpoint is not connected\nsrun: Job step aborted\n",
            "slurm-node-fail",
        ),
        (
            "slurmstepd: error: execve(): /fsx/env/bin/python: No such file or directory\nsrun: error: queue1-dy-p5-1: task 0: \
             Exited with exit code 2\n",
            "file-not-found",
        ),
        (
            "slurmstepd: error: execve(): /fsx/train.sh: Permission denied\nsrun: error: queue1-dy-p5-1: task 0: Exited with exit \
             code 13\n",
            "permission-denied",
        ),
        (
            "srun: error: Unable to create step for job 812: Requested nodes are busy\n",
            "resource-contention",
        ),
        (
            "srun: error: Unable to create step for StepId=812.0: Memory required by task is not available\n",
            "invalid-job-spec",
        ),
        (
            "slurmstepd: error: Failed to invoke task plugins: one of task_p_pre_launch functions failed\n",
            "slurm-node-fail",
        ),
    ] {
        let log = format!("srun: job 812 has been allocated resources\n{lines}");
        assert_eq!(only(&[("slurm-812.out", &log)]).class, class, "{lines}");
    }
}

/// Returns a kernel's reports that a client lost servers of one file system.
fn lost(node: &str, minutes: &[(&str, &str)]) -> String {
    let line = |(time, target, server): (&str, &str, usize)| {
        format!(
            "2026-11-30T10:{time}.000000+00:00 {node} kernel: Lustre: {target}-osc-ffff9a1c: Connection to {target} (at \
             10.0.0.{server}@o2ib) was lost; in progress operations using this service will wait for recovery to complete\n"
        )
    };
    minutes
        .iter()
        .enumerate()
        .map(|(at, (time, target))| line((time, target, at + 5)))
        .collect()
}

#[test]
fn an_outage_of_one_file_system_is_one_case_with_its_servers() {
    let first = [
        ("00:01", "work-OST0003"),
        ("00:40", "work-OST0004"),
        ("03:10", "work-MDT0000"),
    ];
    let second = [
        ("00:04", "work-OST0003"),
        ("00:55", "work-OST0004"),
        ("03:31", "work-MDT0000"),
    ];
    let case = only(&[
        ("n1/kern.log", &lost("n1", &first)),
        ("n2/kern.log", &lost("n2", &second)),
    ]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        (
            "filesystem-hang",
            "file system work (servers 10.0.0.5@o2ib, 10.0.0.6@o2ib, 10.0.0.7@o2ib)"
        )
    );
    let case = only(&[("n1/kern.log", &lost("n1", &first))]);
    assert!(case.blamed.starts_with("file system work (servers "), "{}", case.blamed);
    // Another file system is another failure.
    let other = [("09:10", "home-MDT0000")];
    let log = format!("{}{}", lost("n1", &first), lost("n1", &other));
    assert_eq!(diagnose(&[("n1/kern.log", &log)]).len(), 2);
}
