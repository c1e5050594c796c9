//! Statements that a process of a run ended abnormally, in the words of any launcher: `worker 3 exited with code 1`, `pid 4711 was
//! killed by signal 6`, `Rank 3 died`. What ends is a process, a worker, a rank or a node of the run; how it ends is an exit status
//! other than 0, a signal, or a verb of a crash.

/// Nouns of what ends.
const SUBJECTS: [&str; 15] = [
    "actor",
    "agent",
    "child",
    "executor",
    "job",
    "launcher",
    "node",
    "pid",
    "process",
    "rank",
    "replica",
    "subprocess",
    "task",
    "trainer",
    "worker",
];

/// Verbs of an end of any kind.
const ENDS: [&str; 8] = [
    "aborted",
    "died",
    "ended",
    "exited",
    "failed",
    "finished",
    "killed",
    "terminated",
];

/// Verbs that state an abnormal end by themselves.
const CRASHES: [&str; 3] = ["crashed", "died", "segfaulted"];

/// Words between the verb and the number.
const BETWEEN: [&str; 17] = [
    "a",
    "abnormally",
    "an",
    "and",
    "by",
    "code",
    "error",
    "exit",
    "non",
    "non-zero",
    "nonzero",
    "return",
    "signal",
    "status",
    "the",
    "unexpectedly",
    "with",
];

/// Words before the verb with which nothing ended, or nothing of the run.
const DOUBTS: [&str; 21] = [
    "after",
    "because",
    "before",
    "check",
    "cleanup",
    "dataloader",
    "debug",
    "epilog",
    "hook",
    "if",
    "never",
    "no",
    "not",
    "once",
    "probe",
    "prolog",
    "unless",
    "until",
    "when",
    "whenever",
    "whether",
];

/// Maximum number of words between the noun and the verb.
const APART: usize = 10;

/// Returns true if a message states that a process of a run ended abnormally.
pub(crate) fn states_process_end(text: &str) -> bool {
    let lower = text[..text.floor_char_boundary(1_000)].to_ascii_lowercase();
    let words: Vec<&str> = lower.split(is_between_words).filter(|word| !word.is_empty()).collect();
    let is_verb = |word: &str| ENDS.contains(&word) || CRASHES.contains(&word);
    let states_end = |verb: usize| {
        let (before, after) = (&words[..verb], &words[verb + 1..]);
        let has_subject = before.iter().rev().take(APART).any(|word| is_subject(word));
        // LSF writes only `Exited with exit code 1.`
        let is_whole = verb == 0 && words[verb] == "exited";
        let is_doubtful = before.iter().any(|word| DOUBTS.contains(word));
        let is_crash = CRASHES.contains(&words[verb]) && after.is_empty();
        (has_subject || is_whole) && !is_doubtful && (is_crash || states_number(after))
    };
    let mut verbs = (0..words.len()).filter(|at| is_verb(words[*at]));
    verbs.any(states_end) && !announces_restart(text)
}

/// Returns true if a message announces that what ended is started again.
pub(crate) fn announces_restart(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let restarts = [
        "restart",
        "respawn",
        "relaunch",
        "booting worker",
        "spawning",
        "retrying",
        "will retry",
    ];
    let refusals = ["not ", "no ", "never", "exceeded", "max", "exhausted"];
    restarts.iter().any(|word| lower.contains(word)) && !refusals.iter().any(|word| lower.contains(word))
}

/// Returns true for characters between words; a dash joins a name and its number, and a minus belongs to its number.
fn is_between_words(c: char) -> bool {
    !c.is_ascii_alphanumeric() && c != '-' && c != '_'
}

/// Returns true for a noun of what ends, also in plural or with a number.
fn is_subject(word: &str) -> bool {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '_');
    SUBJECTS.contains(&name) || name.strip_suffix('s').is_some_and(|one| SUBJECTS.contains(&one))
}

/// Returns true if the words after a verb lead to a status other than 0, or to a signal.
fn states_number(after: &[&str]) -> bool {
    let number = after.iter().position(|word| !BETWEEN.contains(word));
    let Some(number) = number.filter(|at| *at > 0) else {
        return false;
    };
    let is_named = after[..number]
        .iter()
        .any(|word| ["code", "signal", "status"].contains(word));
    let value = after[number];
    let is_signal = value.starts_with("sig") && value.len() <= 8;
    let digits = value.trim_start_matches('-');
    let is_nonzero = digits.bytes().all(|b| b.is_ascii_digit()) && digits.bytes().any(|b| b != b'0');
    is_named && (is_nonzero || is_signal)
}
