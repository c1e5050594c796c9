//! Outcomes stated in plain words: `Job 'a1' succeeded`, `experiment finished, status: SUCCESS`,
//! `{"event": "job_state", "state": "SUCCEEDED"}`. The subject has to be the run, not a step of it.

use crate::outcome::RunResult;

/// Words for a run.
const RUNS: [&str; 12] = [
    "experiment",
    "finetuning",
    "fit",
    "job",
    "optimization",
    "pretraining",
    "program",
    "pipeline",
    "run",
    "script",
    "trainer",
    "training",
];

/// Words before them that denote a part or a preparation of it.
const PARTS: [&str; 10] = [
    "data",
    "dry",
    "eval",
    "evaluation",
    "preprocessing",
    "test",
    "upload",
    "validation",
    "warmup",
    "warm",
];

/// Words between a run and its outcome.
const BETWEEN: [&str; 8] = ["has", "is", "was", "now", "been", "successfully", "loop", "process"];

const ENDED: [&str; 5] = ["completed", "finished", "succeeded", "complete", "done"];
const FIELDS: [&str; 4] = ["phase", "result", "state", "status"];
const GOOD: [&str; 4] = ["success", "succeeded", "successful", "completed"];
const BAD: [&str; 5] = ["aborted", "crashed", "failed", "failure", "killed"];
const DOUBT: [&str; 9] = [
    "not", "error", "errors", "failed", "failures", "before", "until", "if", "when",
];

/// Maximum number of words used of a line.
const WORDS: usize = 40;

/// Returns the outcome that a lower-case line states for a run.
pub(crate) fn statement(lower: &str) -> Option<RunResult> {
    // `job_state` is a field of a job, and `run_12` the name of a run.
    let fields = words(lower, |c| !c.is_ascii_alphanumeric());
    field(&fields).or_else(|| sentence(&words(lower, |c| !c.is_ascii_alphanumeric() && c != '_' && c != '-')))
}

fn words(lower: &str, splits: impl Fn(char) -> bool) -> Vec<&str> {
    lower
        .split(splits)
        .filter(|word| !word.is_empty())
        .take(WORDS)
        .collect()
}

/// Parses a field of a run: `status: SUCCESS`.
fn field(words: &[&str]) -> Option<RunResult> {
    let at = words
        .windows(2)
        .position(|pair| FIELDS.contains(&pair[0]) && is_value(pair[1]))?;
    let before = &words[..at];
    let of_run = before.is_empty() || before.iter().any(|word| RUNS.contains(word));
    if !of_run || before.iter().any(|word| PARTS.contains(word)) {
        return None;
    }
    let good = GOOD.contains(&words[at + 1]);
    Some(if good { RunResult::Success } else { RunResult::Failure })
}

fn is_value(word: &str) -> bool {
    GOOD.contains(&word) || BAD.contains(&word)
}

/// Parses a sentence about a run: `Run 12 has finished`.
fn sentence(words: &[&str]) -> Option<RunResult> {
    if words.iter().any(|word| DOUBT.contains(word)) {
        return None;
    }
    let done = |at: usize| {
        let part = at.checked_sub(1).is_some_and(|before| PARTS.contains(&words[before]));
        let mut rest = words[at + 1..].iter();
        // Skips the number or name of the run.
        let ended = rest.find(|word| !BETWEEN.contains(word) && !word.bytes().any(|b| b.is_ascii_digit()));
        !part && ended.is_some_and(|word| ENDED.contains(word))
    };
    let mut subjects = (0..words.len()).filter(|at| RUNS.contains(&words[*at]));
    subjects.any(done).then_some(RunResult::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: Option<RunResult>) {
        assert_eq!(statement(&line.to_ascii_lowercase()), expect, "{line}");
    }

    #[test]
    fn runs_state_how_they_ended() {
        check("Job 'raysubmit_1' succeeded", Some(RunResult::Success));
        check("Run finished successfully.", Some(RunResult::Success));
        check("experiment finished, status: SUCCESS", Some(RunResult::Success));
        check(
            "{\"event\": \"job_state\", \"state\": \"SUCCEEDED\"}",
            Some(RunResult::Success),
        );
        check("Status: Succeeded", Some(RunResult::Success));
        check("job 5 status=FAILED", Some(RunResult::Failure));
    }

    #[test]
    fn parts_and_doubts_state_nothing_of_the_run() {
        check("test run finished", None);
        check("validation job completed", None);
        check("upload status: success", None);
        check("run eval finished", None);
        check("training step completed", None);
        check("job finished with errors", None);
        check("waiting until the job is finished", None);
    }
}
