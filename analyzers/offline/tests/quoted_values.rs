//! Logs that quote error texts as values, and logs that state how their run ended.

use crate::folders::group;

const WORK: &str = "step 1 loss 2.31\nstep 2 loss 2.30\nstep 3 loss 2.29\n";

/// Returns the classes of the cases, and the number of notes about ends and errors.
fn found(log: &str) -> (Vec<String>, usize) {
    let found = group(&[("train.log", log)]);
    let classes = found.cases.iter().map(|case| case.class.clone()).collect();
    (classes, found.reports.len() + found.open_ends.len())
}

#[test]
fn an_error_text_in_a_configuration_is_no_failure() {
    for quoted in [
        r#"args: {"model": "gpt", "on_error": "CUDA out of memory", "lr": 0.0003}"#,
        r#"{"exclude_errors":["No space left on device"]}"#,
        r#"{"level":"INFO","msg":"config","exclude_errors":["No space left on device"]}"#,
        "Namespace(model='gpt', retry_text='CUDA out of memory', lr=0.1)",
        "+ python train.py --retry-on 'CUDA out of memory' --lr 0.1",
        "export RETRY_ON='NCCL remote process exited'",
        "  - \"GPU has fallen off the bus\"",
        "transient_errors = [\"Connection reset by peer\", \"Connection refused\"]",
        "    raise RuntimeError(\"CUDA out of memory\")",
        "tests/test_retry.py::test_text[CUDA out of memory] PASSED",
    ] {
        let log = format!("{quoted}\n{WORK}done, exit code 0\n");
        assert_eq!(found(&log), (Vec::new(), 0), "{quoted}");
        // Without an end the run is open, and nothing else.
        assert_eq!(found(&format!("{quoted}\n{WORK}")), (Vec::new(), 1), "{quoted}");
    }
}

#[test]
fn a_message_of_a_record_is_a_failure() {
    for message in [
        r#"{"level":"ERROR","msg":"CUDA out of memory. Tried to allocate 2.00 GiB"}"#,
        r#"{"level":"ERROR","msg":"step failed","error":"CUDA out of memory. Tried to allocate 2.00 GiB"}"#,
        r#"level=error msg="CUDA out of memory. Tried to allocate 2.00 GiB""#,
        "trainer ended with RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')",
    ] {
        assert_eq!(found(&format!("{WORK}{message}\n")).0, ["cuda-oom"], "{message}");
    }
}

#[test]
fn a_source_line_of_a_traceback_is_no_message() {
    let log = format!(
        "{WORK}Traceback (most recent call last):\n  File \"/srv/train.py\", line 8, in step\n    raise RuntimeError(\"CUDA out \
         of memory\") if full else ValueError(\"bad label\")\nValueError: bad label\n"
    );
    assert_eq!(found(&log).0, ["python-value-error"]);
}

#[test]
fn a_stated_success_ends_a_run() {
    for end in [
        "finished, exit code 0",
        "max steps reached, exiting with code 0",
        "done, exit code 0",
        "{\"msg\":\"finished\",\"exit_code\":0}",
        "{\"ts\":\"2026-11-30T10:00:09Z\",\"level\":\"INFO\",\"msg\":\"finished\",\"exit_code\":0}",
        "worker 3 exited with status 0",
        "rank 0 exited with return code 0",
        "exit status: 0",
        "all ranks exited with code 0",
        "train-0   0/1     Completed   0          12m",
        "Job 'raysubmit_xYz' succeeded",
    ] {
        assert_eq!(found(&format!("{WORK}{end}\n")), (Vec::new(), 0), "{end}");
    }
    for end in ["finished, exit code 3", "main process terminated by signal 9"] {
        assert_eq!(found(&format!("{WORK}{end}\n")).0.len(), 1, "{end}");
    }
}

#[test]
fn a_word_of_a_message_is_no_node() {
    let log = "2026-11-30 10:00:00 step 10 loss 2.3\n\
               2026-11-30 10:00:01 caught torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
    let cases = group(&[("train.log", log)]).cases;
    assert_eq!((cases[0].class.as_str(), &cases[0].root_node), ("cuda-oom", &None));
    assert!(
        !cases[0]
            .reasoning
            .join(" ")
            .contains("caught torch.OutOfMemoryError: CUDA out of memory\" on")
    );
    assert!(
        !cases[0].reasoning.join(" ").contains("node caught"),
        "{:?}",
        cases[0].reasoning
    );
}
