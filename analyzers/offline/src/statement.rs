//! Outcomes stated in plain words: `Job 'a1' succeeded`, `experiment finished, status: SUCCESS`,
//! `{"event": "job_state", "state": "SUCCEEDED"}`. The subject has to be the run, not a step of it.

use std::borrow::Cow;

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

/// Kinds of runs for which a batch script prints the same end after a failure: `echo "Job finished at $(date)"`.
const SCRIPTED: [&str; 2] = ["job", "script"];
/// Words for the end of a run that do not mean that its work is complete.
const OVER: [&str; 2] = ["done", "finished"];
/// Words that state more than an end.
const SUCCEEDED: [&str; 5] = ["job-controller", "succeeded", "success", "successful", "successfully"];

/// Maximum number of words used of a line.
const WORDS: usize = 40;

/// Returns the outcome that a lower-case line states for a run.
pub(crate) fn statement(lower: &str) -> Option<RunResult> {
    // `job_state` is a field of a job, and `run_12` the name of a run.
    let fields = words(lower, |c| !c.is_ascii_alphanumeric());
    let is_edge = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
    field(&fields).or_else(|| sentence(&words(&without_name(lower), is_edge)))
}

/// Returns a line without the quoted name behind a word for a run: `job 'raysubmit_x' succeeded`.
fn without_name(lower: &str) -> Cow<'_, str> {
    let name = |quote: char| {
        let start = lower.find(&format!(" {quote}"))?;
        let is_run = lower[..start]
            .rsplit(' ')
            .next()
            .is_some_and(|word| RUNS.contains(&word));
        let rest = &lower[start + 2..];
        let end = rest.find(quote).filter(|end| is_run && !rest[..*end].contains(' '))?;
        Some((start, start + 2 + end + 1))
    };
    match name('\'').or_else(|| name('"')) {
        Some((start, end)) => Cow::Owned(format!("{}{}", &lower[..start], &lower[end..])),
        None => Cow::Borrowed(lower),
    }
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
    let mut subjects = (0..words.len()).filter(|at| RUNS.contains(&words[*at]));
    subjects.any(|at| has_ended(words, at)).then_some(RunResult::Success)
}

/// Returns true if a lower-case line states only that a job or script ended, not that it succeeded. "Job completed" is
/// such a line too if nothing is before it: Kubernetes lists it as the message of an event.
pub(crate) fn states_end_only(lower: &str) -> bool {
    let lower = without_name(lower);
    let words = words(&lower, |c| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    let is_subject = |at: &usize| RUNS.contains(&words[*at]) && has_ended(&words, *at);
    let subjects: Vec<&str> = (0..words.len()).filter(is_subject).map(|at| words[at]).collect();
    let is_scripted = subjects.iter().all(|subject| SCRIPTED.contains(subject));
    let is_over = words.first() == subjects.first() || words.iter().any(|word| OVER.contains(word));
    !subjects.is_empty() && is_scripted && is_over && !words.iter().any(|word| SUCCEEDED.contains(word))
}

/// Returns true if the words after a subject state its end: `run 12 has finished`.
fn has_ended(words: &[&str], at: usize) -> bool {
    let part = at.checked_sub(1).is_some_and(|before| PARTS.contains(&words[before]));
    let mut rest = words[at + 1..].iter();
    // Skips the number or name of the run.
    let ended = rest.find(|word| !BETWEEN.contains(word) && !word.bytes().any(|b| b.is_ascii_digit()));
    !part && ended.is_some_and(|word| ENDED.contains(word))
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
        check("Job 'raysubmit_xYz' succeeded", Some(RunResult::Success));
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
    fn scripts_state_the_end_of_a_job_and_not_its_success() {
        for line in [
            "job finished",
            "job 12 finished at wed mar 4 10:00:52",
            "job completed",
            "script done",
        ] {
            assert!(states_end_only(line), "{line}");
        }
        for line in [
            "job finished successfully",
            "job-controller job completed",
            "training finished",
            "job succeeded",
            "phase: completed",
        ] {
            assert!(!states_end_only(line), "{line}");
        }
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
