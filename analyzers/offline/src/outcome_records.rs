//! Formats in which frameworks, launchers and schedulers state the start and the end of a run.

use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_model::Rank;

use crate::exit_status::stated_end;
use crate::outcome::{EndSource, RunEvent, RunRecord, RunResult};
use crate::progress::{is_completion, is_done};
use crate::statement::{statement, states_end_only};

/// Substrings of which one occurs in every end record that noise may follow, in the case that its writer
/// uses.
pub(crate) const END_HINTS: [&str; 10] = [
    "raining",
    "RAINING",
    "stopped: `max_",
    "ucce",
    "UCCE",
    "train_runtime",
    "run_st",
    "omplete",
    "Status:  ",
    "xiting with ",
];

/// Substrings of which one, or one of [`END_HINTS`], occurs in every other record; these matter only
/// after an alarm.
pub(crate) const ALARM_HINTS: [&str; 20] = [
    " done",
    " Done",
    " passed",
    "inished",
    "OMPLETED",
    "xit",
    "EXIT",
    "CANCELLED",
    "DEADLINE",
    "FAIL",
    "PREEMPTED",
    "TIMEOUT",
    "OUT_OF_ME",
    "ChildFailed",
    "JobState=",
    "  Error  ",
    "  Failed  ",
    "OOMKilled",
    "Starting worker group",
    "terminate the job",
];

/// States of Slurm in which a job did not complete its work.
const FAILED_STATES: [&str; 12] = [
    "BOOT_FAIL",
    "CANCELLED",
    "CANCELLED+",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_ME+",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "TIMEOUT",
];

/// Text of Slurm for a job that it stops to start it again later.
const REQUEUE: &str = "DUE TO JOB REQUEUE";

/// Parses the record in a line, if there is one.
pub(crate) fn record(number: u64, line: &str) -> Option<RunRecord> {
    let line = &line[..line.floor_char_boundary(4_000)];
    let hinted = || END_HINTS.iter().chain(&ALARM_HINTS).any(|hint| line.contains(hint));
    if !hinted() && !is_last_work(line) {
        return None;
    }
    let cleaned = clean(line);
    let parsed = parse(&cleaned, &LineClock::default());
    let event = event(parsed.text).or_else(|| event(line))?;
    // An MLPerf log and a scheduler state the end of the run, independent of the printing rank.
    let of_job = line.contains(":::MLL") || matches!(event, RunEvent::Ended(_, EndSource::Scheduler));
    Some(RunRecord {
        line: number,
        rank: parsed.rank.or_else(|| ended_rank(parsed.text)).filter(|_| !of_job),
        job: job_number(line),
        event,
        describes: pod_phase(&parsed.text.to_ascii_lowercase()).is_some(),
    })
}

/// Returns the rank that a message names as the one that ended.
fn ended_rank(text: &str) -> Option<Rank> {
    stated_end(&text.to_ascii_lowercase())?.rank
}

fn event(text: &str) -> Option<RunEvent> {
    let lower = text.to_ascii_lowercase();
    mlperf(&lower)
        .or_else(|| pod_phase(&lower))
        .or_else(|| listed_phase(text))
        .or_else(|| slurm(text))
        .or_else(|| launcher(text, &lower))
        .or_else(|| stated_end(&lower).map(|end| end.event))
        .or_else(|| framework(text, &lower))
        .or_else(|| is_last_work(text).then_some(RunEvent::Ended(RunResult::Success, EndSource::Work)))
}

fn ended(success: bool, source: EndSource) -> RunEvent {
    let result = if success {
        RunResult::Success
    } else {
        RunResult::Failure
    };
    RunEvent::Ended(result, source)
}

/// Parses `:::MLLOG {... "key": "run_stop", ... "metadata": {"status": "success"}}` of MLPerf logging.
fn mlperf(lower: &str) -> Option<RunEvent> {
    if !lower.contains(":::mll") && !lower.contains("\"event_type\"") {
        return None;
    }
    if lower.contains("\"run_start\"") {
        return Some(RunEvent::Started);
    }
    let stopped = lower.contains("\"run_stop\"") && lower.contains("\"status\"");
    stopped.then(|| ended(lower.contains("\"success\""), EndSource::Framework))
}

/// Parses the phase in a description of a pod: `Status:  Succeeded`, `phase: Failed`.
fn pod_phase(lower: &str) -> Option<RunEvent> {
    let (key, phase) = lower.trim().split_once(':')?;
    if !["phase", "status"].contains(&key) {
        return None;
    }
    match phase.trim() {
        "succeeded" => Some(ended(true, EndSource::Framework)),
        "failed" => Some(ended(false, EndSource::Framework)),
        "pending" | "running" => Some(RunEvent::Started),
        _ => None,
    }
}

/// Parses a row of `kubectl get`: name, ready containers, status of a pod; name, status, completions of a job (since Kubernetes 1.31).
fn listed_phase(text: &str) -> Option<RunEvent> {
    let mut words = text.split_whitespace().skip(1);
    let pair = [words.next()?, words.next()?];
    let is_count = |word: &str| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        word.split_once('/')
            .is_some_and(|(one, all)| digits(one) && digits(all))
    };
    let state = match pair {
        [ready, "Completed"] if is_count(ready) => true,
        [ready, "Error" | "OOMKilled"] if is_count(ready) => false,
        ["Complete", count] if is_count(count) => true,
        ["Failed", count] if is_count(count) => false,
        _ => return None,
    };
    Some(ended(state, EndSource::Framework))
}

/// Parses final states of `scontrol show job` and `sacct`, the record of slurmctld, and cancelled steps.
fn slurm(text: &str) -> Option<RunEvent> {
    if let Some((_, state)) = text.split_once("JobState=") {
        let state = state.split_whitespace().next()?;
        let known = state == "COMPLETED" || FAILED_STATES.contains(&state);
        return known.then(|| ended(state == "COMPLETED", EndSource::Scheduler));
    }
    if let Some((_, status)) = text.split_once(" WEXITSTATUS ") {
        return Some(ended(status.trim() == "0", EndSource::Scheduler));
    }
    // A job that is queued again has not ended.
    if text.contains("*** ") && text.contains(" CANCELLED AT ") && !text.contains(REQUEUE) {
        return Some(ended(false, EndSource::Scheduler));
    }
    // A row of `sacct`: state, then exit code and signal.
    let words: Vec<&str> = row_cells(text).collect();
    let row = words.first()?.starts_with(|c: char| c.is_ascii_digit());
    let state = words
        .iter()
        .find(|word| **word == "COMPLETED" || FAILED_STATES.contains(*word));
    let code = words.iter().any(|word| is_exit_pair(word));
    (row && code).then_some(state).flatten().map(|state| {
        let clean = *state == "COMPLETED" && words.contains(&"0:0");
        ended(clean, EndSource::Scheduler)
    })
}

/// Returns the words of a row of `sacct`, as a table or with delimiters.
fn row_cells(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c == '|')
        .filter(|word| !word.is_empty())
}

/// Returns true for `0:0`, `1:0`, `0:9`: exit code and signal.
fn is_exit_pair(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit());
    word.split_once(':')
        .is_some_and(|(code, signal)| digits(code) && digits(signal))
}

/// Parses ends that launchers and batch systems state as sentences.
fn launcher(text: &str, lower: &str) -> Option<RunEvent> {
    if text.trim() == "Successfully completed." {
        return Some(ended(true, EndSource::Scheduler));
    }
    if lower.contains("starting worker group") {
        return Some(RunEvent::Started);
    }
    let group = lower.contains("worker group");
    if group && (lower.contains("successfully finished") || text.contains("SUCCEEDED")) {
        return Some(ended(true, EndSource::Framework));
    }
    if lower.starts_with("process ") && lower.trim_end_matches('.').ends_with("exits successfully") {
        return Some(ended(true, EndSource::Work));
    }
    let task = lower.contains(": task ") || lower.contains(": tasks ");
    let failed = task && lower.contains("exited with exit code") && !lower.trim_end().ends_with("exit code 0")
        || lower.contains("exited with non-zero status")
        || lower.contains("childfailederror")
        // Open MPI and PRRTE, after the loss of a daemon (`help-errmgr-base.txt`).
        || lower.contains("therefore will terminate the job");
    failed.then(|| ended(false, EndSource::Process))
}

/// Parses end records of training frameworks.
fn framework(text: &str, lower: &str) -> Option<RunEvent> {
    if let Some(passed) = test_summary(lower) {
        return Some(ended(passed, EndSource::Framework));
    }
    // As a dictionary, or as one metric a line.
    let is_metric = || {
        lower
            .trim_start()
            .strip_prefix("train_runtime")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let summary = lower.contains("train_runtime") && lower.contains("train_loss") || is_metric();
    if summary || is_done(text) || is_run_time(lower) {
        return Some(ended(true, EndSource::Framework));
    }
    let result = statement(lower)?;
    // Failures need no second sign.
    let source = if result == RunResult::Success && states_end_only(lower) {
        EndSource::Work
    } else {
        EndSource::Framework
    };
    Some(RunEvent::Ended(result, source))
}

/// Parses the summary of pytest: `===== 2 passed, 1 xfailed in 3.21s =====`. Returns true if no test failed.
fn test_summary(lower: &str) -> Option<bool> {
    let (counts, time) = lower.trim_matches([' ', '=']).rsplit_once(" in ")?;
    let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.split(' ').next()?.ends_with('s');
    let mut has_failed = false;
    let mut is_summary = is_time;
    for count in counts.split(", ") {
        let (number, result) = count.split_once(' ')?;
        has_failed |= ["failed", "error", "errors"].contains(&result);
        let is_known = has_failed
            || [
                "passed",
                "skipped",
                "deselected",
                "xfailed",
                "xpassed",
                "warning",
                "warnings",
            ]
            .contains(&result);
        is_summary &= is_known && number.bytes().all(|b| b.is_ascii_digit());
    }
    is_summary.then_some(!has_failed)
}

/// Returns true for `Training time 0:12:03`, `total training time: 201 s`: the total printed after
/// training.
fn is_run_time(lower: &str) -> bool {
    let sum = lower.starts_with("training time ") || lower.contains("total training time");
    sum && lower.bytes().any(|b| b.is_ascii_digit()) && !lower.contains(" per ") && !lower.contains("epoch")
}

/// Returns true for the last epoch, a bar at its end, or a saved final model.
fn is_last_work(line: &str) -> bool {
    let saved = ["aved ", "aving ", "aved\u{a0}"].iter().any(|word| line.contains(word)) || line.ends_with("aved");
    is_completion(line) || saved && is_final_save(line) || is_last_epoch(line)
}

fn is_final_save(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let doubt = ["not ", "fail", "error", "before ", "unable", "cannot"];
    let what = [
        "final model",
        "final checkpoint",
        "final weights",
        "model saved",
        "saved model",
        "model weights saved",
    ];
    what.iter().any(|what| lower.contains(what)) && !doubt.iter().any(|word| lower.contains(word))
}

/// Returns true for `Epoch 3/3`, `epoch [10/10]`.
fn is_last_epoch(line: &str) -> bool {
    let Some(at) = line.find("poch") else { return false };
    let counts = line[at + 4..].trim_start_matches([' ', ':', '[', '=', '#']);
    let number = |text: &str| -> String { text.chars().take_while(char::is_ascii_digit).collect() };
    let done = number(counts);
    let total = counts[done.len()..]
        .trim_start()
        .strip_prefix('/')
        .map(|rest| number(rest.trim_start()));
    !done.is_empty() && total.as_deref() == Some(done.as_str())
}

/// Parses the number in `JobId=771`, `StepId=771.0`, `STEP 771.0`, `JOB 771`, or in the first word of a
/// row of `sacct`.
pub(crate) fn job_number(text: &str) -> Option<u64> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let keys = ["JobId=", "JobID=", "StepId=", "*** STEP ", "*** JOB ", "Job <", " job "];
    let named = keys.iter().find_map(|key| number(text.split_once(key)?.1));
    let row = || {
        let words: Vec<&str> = row_cells(text).collect();
        let state = words
            .iter()
            .any(|word| *word == "COMPLETED" || FAILED_STATES.contains(word));
        state.then(|| number(words.first()?)).flatten()
    };
    named.or_else(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: Option<RunEvent>) {
        assert_eq!(record(1, line).map(|record| record.event), expect, "{line}");
    }

    #[test]
    fn ends_have_the_source_that_states_them() {
        check("0: Training complete", Some(ended(true, EndSource::Framework)));
        check(
            "   JobState=COMPLETED Reason=None",
            Some(ended(true, EndSource::Scheduler)),
        );
        check(
            "   JobState=NODE_FAIL Reason=None",
            Some(ended(false, EndSource::Scheduler)),
        );
        check("812   train  COMPLETED   0:0", Some(ended(true, EndSource::Scheduler)));
        check("812   train  FAILED   1:0", Some(ended(false, EndSource::Scheduler)));
        check("812|train|DEADLINE|0:0", Some(ended(false, EndSource::Scheduler)));
        check("812|train|COMPLETED|0:0", Some(ended(true, EndSource::Scheduler)));
        check(
            "812  train  OUT_OF_ME+  0:125",
            Some(ended(false, EndSource::Scheduler)),
        );
        check(
            "evaluation finished, exit code 0",
            Some(ended(true, EndSource::Process)),
        );
        check("exiting with code 0", Some(ended(true, EndSource::Process)));
        check(
            "main process exited, exit code: 0",
            Some(ended(true, EndSource::Process)),
        );
        check(
            "Process finished with exit code 0",
            Some(ended(true, EndSource::Process)),
        );
        check("job finished with exit code 3", Some(ended(false, EndSource::Process)));
        check(
            "  train_runtime            = 0:41:07.30",
            Some(ended(true, EndSource::Framework)),
        );
        check(
            "=========== 14 passed, 2 xfailed, 1 warning in 9.02s ===========",
            Some(ended(true, EndSource::Framework)),
        );
        check(
            "=========== 1 failed, 14 passed in 61.10s (0:01:01) ===========",
            Some(ended(false, EndSource::Framework)),
        );
        check(
            "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-05-02T09:00:22 DUE TO JOB REQUEUE ***",
            None,
        );
        check("3 ranks passed the barrier in 4s", None);
        check("[n1][INFO] Process 77 exits successfully.", None);
        check("Process 77 exits successfully.", Some(ended(true, EndSource::Work)));
        check(
            "train-0   0/1     Completed   0          12m",
            Some(ended(true, EndSource::Framework)),
        );
        check(
            "train   Failed   0/1   12m   12m",
            Some(ended(false, EndSource::Framework)),
        );
        check("Epoch 3/3: loss 0.4", Some(ended(true, EndSource::Work)));
        check(
            "Job finished at Wed Mar  4 10:00:52",
            Some(ended(true, EndSource::Work)),
        );
    }

    #[test]
    fn steps_beside_the_run_end_nothing() {
        check(
            "Process 77 finished with exit code 0",
            Some(ended(true, EndSource::Work)),
        );
        check("cleanup finished with exit code 0", None);
        check("data worker exited with code 0", None);
        check("Download completed successfully", None);
        check("Evaluation finished successfully", None);
        check("step 12: exit code 0.5", None);
        check("Epoch 2/3: loss 0.4", None);
        check("failed, so the final model was not saved", None);
    }
}
