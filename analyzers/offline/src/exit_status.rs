//! Exit statuses and ends by a signal, as launchers, shells and programs state them: `done, exit code 0`, `rank 3 exited with
//! status 1`, `{"msg": "finished", "exit_code": 0}`.
//!
//! The subject of the statement decides what it is about. The end of the whole run outweighs that of one rank or worker, and the
//! end of a step beside the run (a probe, an upload) is none.

use std::borrow::Cow;

use rankguard_model::Rank;
use serde_json::{Map, Value};

use crate::outcome::{EndSource, RunEvent, RunResult};

/// Phrases before the exit status of a process, specific ones first.
const STATUSES: [&str; 15] = [
    "exit code",
    "exit status",
    "exit_status",
    "exitcode",
    "exit_code",
    "exited with code",
    "exited with status",
    "exiting with code",
    "exiting with status",
    "exited, code=exited, status",
    "return code",
    "return_code",
    "returncode",
    "returned with code",
    "finished with status",
];

/// Phrases before the number or name of the signal that ended a process.
const SIGNALS: [&str; 7] = [
    "exited on signal",
    "exited with signal",
    "terminated by signal",
    "terminated with signal",
    "killed by signal",
    "died with signal",
    "ended by signal",
];

/// Subjects that denote the whole run.
const RUNS: [&str; 17] = [
    "job",
    "main",
    "training",
    "trainer",
    "program",
    "python",
    "script",
    "container",
    "evaluation",
    "run",
    "entrypoint",
    "launcher",
    "workload",
    "torchrun",
    "deepspeed",
    "mpirun",
    "mpiexec",
];

/// Subjects that denote a step besides the run.
const STEPS: [&str; 15] = [
    "cleanup",
    "dataloader",
    "epilog",
    "prolog",
    "upload",
    "download",
    "install",
    "check",
    "probe",
    "hook",
    "nvidia-smi",
    "git",
    "pip",
    "build",
    "data",
];

/// Subjects that denote one part of a run with several.
const PARTS: [&str; 8] = [
    "rank",
    "worker",
    "task",
    "replica",
    "pod",
    "node",
    "child",
    "subprocess",
];

/// Subjects that denote several parts.
const SEVERAL: [&str; 6] = ["ranks", "workers", "tasks", "replicas", "processes", "pods"];

/// Verbs of the end of a run without a subject: `finished, exit code 0`.
const ENDS: [&str; 12] = [
    "completed",
    "complete",
    "done",
    "ended",
    "exit",
    "exited",
    "exiting",
    "finished",
    "reached",
    "returning",
    "stopped",
    "stopping",
];

/// Words around such a verb that name no other subject.
const FILLERS: [&str; 24] = [
    "all",
    "and",
    "cleanly",
    "code",
    "epoch",
    "epochs",
    "final",
    "gracefully",
    "info",
    "is",
    "iterations",
    "limit",
    "max",
    "maximum",
    "normally",
    "now",
    "of",
    "status",
    "step",
    "steps",
    "successfully",
    "target",
    "the",
    "with",
];

/// Words with which a line states no end that happened.
const DOUBTS: [&str; 11] = [
    "before", "expect", "expected", "if", "never", "no", "not", "unless", "until", "when", "whenever",
];

/// Members of a structured record with its message.
const MESSAGES: [&str; 4] = ["msg", "message", "event", "text"];

/// End that a line states, and the rank that it names as the one that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatedEnd {
    pub(crate) event: RunEvent,
    pub(crate) rank: Option<Rank>,
}

/// Subject of a statement about an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndSubject {
    /// The whole run.
    Run,
    /// A rank, worker or process of several.
    Part(Option<Rank>),
}

/// Parses the exit status or the signal in a lower-case message. The failure of one part is none of the run, which may start the
/// part again ([`crate::process_end`]).
pub(crate) fn stated_end(lower: &str) -> Option<StatedEnd> {
    let (subject, success) = status(lower).or_else(|| signal(lower))?;
    let message = message_of(lower).map_or(Cow::Borrowed(subject), Cow::Owned);
    match subject_of(&message)? {
        EndSubject::Run => Some(StatedEnd {
            event: ended(success, EndSource::Process),
            rank: None,
        }),
        EndSubject::Part(rank) => success.then(|| StatedEnd {
            event: ended(true, EndSource::Work),
            rank,
        }),
    }
}

fn ended(success: bool, source: EndSource) -> RunEvent {
    let result = if success {
        RunResult::Success
    } else {
        RunResult::Failure
    };
    RunEvent::Ended(result, source)
}

/// Returns the text before an exit status, and true if the status is 0.
fn status(lower: &str) -> Option<(&str, bool)> {
    let (at, phrase) = STATUSES
        .iter()
        .find_map(|phrase| Some((lower.find(phrase)?, *phrase)))?;
    let value = lower[at + phrase.len()..].trim_start_matches([' ', ':', '=', '(', '\t', '"', '\'']);
    let number = value.trim_start_matches('-');
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    // `exit code 0.5`, `0:0` and `0/1` are something else.
    let fraction = number[digits..].strip_prefix(['.', ':', '/']);
    if digits == 0 || fraction.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return None;
    }
    let is_zero = number[..digits].bytes().all(|digit| digit == b'0');
    Some((lower[..at].trim(), is_zero))
}

/// Returns the text before a signal that ended a process, and false: no such end is a success.
fn signal(lower: &str) -> Option<(&str, bool)> {
    let (at, phrase) = SIGNALS.iter().find_map(|phrase| Some((lower.find(phrase)?, *phrase)))?;
    let value = lower[at + phrase.len()..].trim_start_matches([' ', ':', '=', '(']);
    let is_signal = value.starts_with("sig") || value.starts_with(|c: char| ('1'..='9').contains(&c));
    is_signal.then(|| (lower[..at].trim(), false))
}

/// Returns the message of a structured record; an empty one if it has no message.
fn message_of(lower: &str) -> Option<String> {
    let start = lower.find('{')?;
    let members: Map<String, Value> = serde_json::from_str(lower[start..].trim_end()).ok()?;
    let message = MESSAGES.iter().find_map(|name| members.get(*name)?.as_str());
    Some(message.unwrap_or_default().to_owned())
}

fn subject_of(subject: &str) -> Option<EndSubject> {
    let is_word = |word: &&str| !word.is_empty();
    let words: Vec<&str> = subject
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(is_word)
        .collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    if has(&STEPS) || has(&DOUBTS) {
        return None;
    }
    if words.contains(&"all") && has(&SEVERAL) {
        return Some(EndSubject::Run);
    }
    let part = words
        .iter()
        .position(|word| PARTS.contains(word) || is_numbered_part(word));
    if let Some(at) = part {
        let number = words.get(at + 1).and_then(|word| word.parse().ok());
        let rank = number.filter(|_| words[at] == "rank").map(Rank);
        let is_one = rank.is_some() || number.is_some() || is_numbered_part(words[at]);
        return is_one.then_some(EndSubject::Part(rank));
    }
    let after = subject.rsplit_once("process").map(|(_, rest)| rest.trim_start());
    let is_numbered = after.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if words.is_empty() || has(&RUNS) || has(&["process"]) && !is_numbered {
        return Some(EndSubject::Run);
    }
    if has(&["process"]) {
        return Some(EndSubject::Part(None));
    }
    let is_end = |word: &&str| ENDS.contains(word);
    let is_plain = |word: &&str| is_end(word) || FILLERS.contains(word) || word.bytes().all(|b| b.is_ascii_digit());
    (words.iter().any(is_end) && words.iter().all(is_plain)).then_some(EndSubject::Run)
}

/// Returns true for `worker-3`, `rank0`: a part with its number.
fn is_numbered_part(word: &str) -> bool {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
    name.len() < word.len() && PARTS.contains(&name.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: Option<(bool, EndSource)>) {
        let found = stated_end(&line.to_ascii_lowercase()).map(|end| end.event);
        assert_eq!(found, expect.map(|(success, source)| ended(success, source)), "{line}");
    }

    #[test]
    fn the_whole_run_ends_with_a_status() {
        for (line, success) in [
            ("finished, exit code 0", true),
            ("done, exit code 0", true),
            ("max steps reached, exiting with code 0", true),
            ("reached step 500 of 500, exit status: 0", true),
            ("{\"msg\":\"finished\",\"exit_code\":0}", true),
            ("{\"exit_code\":0,\"msg\":\"run finished\"}", true),
            (
                "{\"level\":\"info\",\"msg\":\"trainer exited\",\"returncode\":1}",
                false,
            ),
            ("job finished: exit status: 0", true),
            ("process exited with status 0", true),
            ("all ranks exited with code 0", true),
            ("torchrun exited with return code 1", false),
            ("done, exit code 2", false),
            ("main process terminated by signal 9", false),
            ("python: killed by signal SIGSEGV", false),
        ] {
            check(line, Some((success, EndSource::Process)));
        }
    }

    #[test]
    fn a_rank_or_worker_ends_for_itself() {
        for line in [
            "rank 0 exited with return code 0",
            "worker 3 exited with status 0",
            "worker-3 exited with status 0",
            "Process 77 finished with exit code 0",
        ] {
            check(line, Some((true, EndSource::Work)));
        }
        // A part that failed may start again.
        check("worker-3 exited with status 1", None);
        check(
            "process rank 0 with pid 123 on node n1 exited on signal 9 (Killed).",
            None,
        );
        let end = stated_end("rank 3 exited with code 0").expect("an end");
        assert_eq!(end.rank, Some(Rank(3)));
    }

    #[test]
    fn other_subjects_end_no_run() {
        for line in [
            "data worker exited with code 0",
            "cleanup finished with exit code 0",
            "nccl-tests all_reduce exited with code 0",
            "step 12: exit code 0.5",
            "{\"msg\":\"probe finished\",\"exit_code\":0}",
            "{\"msg\":\"step\",\"step\":3,\"exit_code\":0}",
            "dataloader worker (pid 7) is killed by signal: killed.",
            "expected exit code: none",
            "if the job exits with exit code 0, the epilog runs",
        ] {
            check(line, None);
        }
    }
}
