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
