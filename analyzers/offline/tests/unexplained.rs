//! Failures that a log states and no rule knows.

use crate::folders::diagnose;

#[test]
fn a_stated_failure_of_unknown_class_is_a_case() {
    let fatal = "2026-05-03T08:00:00Z step 40 loss 2.0\n2026-05-03T08:05:00Z ERROR shardd: 3 of 9 lanes are dry\n2026-05-03T08:05:02Z CRITICAL: lanes are dry, stopping here\n";
    let status = "2026-05-03T08:00:00Z step 40 loss 2.0\n2026-05-03T08:05:00Z lanes are dry\n2026-05-03T08:05:02Z exit status 4\n";
    for (log, line) in [(fatal, 3), (status, 3)] {
        let cases = diagnose(&[("job.log", log)]);
        assert_eq!(cases.len(), 1, "{log}: {cases:?}");
        assert_eq!(
            (cases[0].class.as_str(), cases[0].blamed.as_str()),
            ("unknown", "unknown"),
            "{log}"
        );
        assert_eq!(cases[0].key_lines[0].line, line, "{log}");
        assert!(cases[0].reasoning[0].contains("No rule knows the line"), "{cases:?}");
    }
}

#[test]
fn a_known_failure_explains_what_the_log_states() {
    let log = "2026-05-03T08:05:00Z OSError: [Errno 28] No space left on device\n2026-05-03T08:05:02Z CRITICAL: cannot go on\n2026-05-03T08:05:02Z exit status 1\n";
    let cases = diagnose(&[("job.log", log)]);
    assert_eq!(cases.len(), 1, "{cases:?}");
    assert_eq!(cases[0].class, "disk-full");
}

#[test]
fn a_stated_failure_before_more_work_or_a_success_is_none() {
    for log in [
        "2026-05-03T08:05:02Z CRITICAL: lane 3 is dry\n2026-05-03T08:06:00Z step 41 loss 2.0\n",
        "2026-05-03T08:05:02Z CRITICAL: lane 3 is dry\n2026-05-03T08:06:00Z Training completed successfully\n",
        "2026-05-03T08:05:02Z job finished with exit code 0\n",
        "2026-05-03T08:05:02Z the fatal lane 3 was replaced\n",
    ] {
        let cases = diagnose(&[("job.log", log)]);
        assert!(cases.is_empty(), "{log}: {cases:?}");
    }
}

/// aws-parallelcluster#5670 and HabanaAI/hccl_demo.
#[test]
fn an_operation_that_failed_is_a_failure_if_no_log_shows_work() {
    let launch = "2023-08-28 16:55:46,889 - [slurm_plugin.resume:_resume] - INFO - Successfully launched nodes (x0) []\n2023-08-28 \
                  16:55:46,889 - [slurm_plugin.resume:_resume] - ERROR - Failed to launch following nodes, setting nodes to down: \
                  (x1) ['spot-1']\n2023-08-28 16:55:46,908 - [slurm_plugin.resume:main] - INFO - ResumeProgram finished.\n";
    let number = "demo: In function initDevice(): openRing(&handle, nullptr) failed with ring error: 20\n";
    let plain = "2023-08-28 16:56:00,000 - ERROR - lane 3 is dry\n";
    for (log, line) in [(launch, 2), (number, 1), (plain, 1)] {
        let cases = diagnose(&[("slurm_resume.log", log)]);
        assert_eq!(cases.len(), 1, "{log}: {cases:?}");
        assert_eq!(
            (cases[0].class.as_str(), cases[0].key_lines[0].line),
            ("unknown", line),
            "{log}"
        );
    }
    // A program that works reports such errors too, and 0 is no error.
    for log in [
        "2023-08-28 16:55:46,889 - INFO - step 40 loss 2.0\n2023-08-28 16:56:00,000 - ERROR - Failed to send the metrics\n",
        "2023-08-28 16:56:00,000 - ERROR - Failed to send the metrics\n2023-08-28 16:56:46,889 - INFO - step 40 loss 2.0\n",
        "the probe failed with status code: 0\n",
    ] {
        let cases = diagnose(&[("job.log", log)]);
        assert!(cases.is_empty(), "{log}: {cases:?}");
    }
}

#[test]
fn a_daemon_of_jobs_that_ends_is_a_failure_and_another_daemon_is_none() {
    let fatal = "Feb 24 09:21:38 n1 slurmd[26180]: fatal: lanes of the ring are dry\n";
    let cases = diagnose(&[("messages", fatal)]);
    assert_eq!(cases.len(), 1, "{cases:?}");
    assert_eq!(cases[0].class, "unknown");
    for log in [
        "Feb 24 09:21:38 n1 sshd[77]: fatal: Timeout before authentication for 10.0.0.9 port 22\n".to_owned(),
        format!("{fatal}Feb 24 09:22:38 n1 slurmd[26301]: slurmd started on Tue\n"),
    ] {
        let cases = diagnose(&[("messages", &log)]);
        assert!(cases.is_empty(), "{log}: {cases:?}");
    }
}

#[test]
fn levels_of_usual_loggers_state_a_failure_if_no_log_shows_work() {
    for line in [
        "level=fatal msg=\"worker pool went away\"",
        "{\"level\":\"fatal\",\"msg\":\"worker pool went away\"}",
        "2026-11-30 10:00:00,123 - trainer - FATAL - worker pool went away",
        "ERROR: worker pool went away",
        "2026-11-30T10:00:00Z ERROR worker pool went away",
        "[ERROR] worker pool went away",
        "ERROR:root:worker pool went away",
        "2026-11-30 10:00:00.123 | ERROR    | main:run:7 - worker pool went away",
        "E1130 10:00:00.123456  881 pool.cc:7] worker pool went away",
    ] {
        let cases = diagnose(&[("job.log", line)]);
        assert_eq!(cases.len(), 1, "{line}: {cases:?}");
        assert_eq!(cases[0].class, "unknown", "{line}");
    }
    for line in [
        "level=error msg=\"pool is busy, retrying\"",
        "level=info msg=\"0 errors\"",
        "{\"level\":\"info\",\"msg\":\"error rate 0\"}",
        "ERROR: worker pool went away\nstep 41 loss 2.0",
    ] {
        assert!(diagnose(&[("job.log", line)]).is_empty(), "{line}");
    }
}
