//! Journal analysis of known histories: simulator scripts, which contain the hidden truth.

use std::path::Path;

use rankguard_core::Event;
use rankguard_journal::{JOURNAL_FILE, Journal, JournalRecord, JournalSummary, analyse_journal, encode};
use rankguard_sim::{FaultScript, SimulatedWorld};

const EPOCH_NS: i64 = 1_704_067_200_000_000_000;

/// Runs a script, writes its journal like a controller, and analyses it.
fn analysis(script: &str) -> (JournalSummary, Vec<JournalRecord>) {
    analysis_of(script, |_| {})
}

/// Like the plain analysis; `change` edits each event before it is journalled.
fn analysis_of(script: &str, change: impl Fn(&mut Event)) -> (JournalSummary, Vec<JournalRecord>) {
    let script = FaultScript::parse(script).expect("a script");
    let policy = script.policy.clone();
    let ended = SimulatedWorld::new(script).play();
    assert_eq!(ended.broken, Vec::<String>::new());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut journal = Journal::open(&dir.path().join(JOURNAL_FILE), &policy).expect("a journal");
    let mut events = ended.journal.clone();
    events.iter_mut().for_each(|stamped| change(&mut stamped.event));
    for batch in events.chunks(64) {
        let entries: Vec<Vec<u8>> = batch.iter().map(|event| encode(event).expect("JSON")).collect();
        journal.append(&entries).expect("room");
    }
    drop(journal);
    let mut all = Vec::new();
    let end = analyse_journal(dir.path(), |one| all.push(one)).expect("a sound journal");
    assert_eq!(end.entries, ended.journal.len() as u64);
    assert!(!all.iter().any(|one| matches!(one, JournalRecord::Problem(_))));
    (end, all)
}

fn of_sim(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../sim/scripts/{name}.toml"));
    std::fs::read_to_string(path).expect("a script of the simulator")
}

macro_rules! all {
    ($records:expr, $kind:ident) => {
        $records.iter().filter_map(|one| match one {
            JournalRecord::$kind(one) => Some(one),
            _ => None,
        })
    };
}

#[test]
fn a_lost_node_is_one_failure_one_absence_and_three_attempts() {
    let (end, records) = analysis(&of_sim("node-lost"));
    assert_eq!((end.nodes, end.open), (3, 0));
    let failures: Vec<_> = all!(records, Failure).collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].blamed.node().map(|node| node.as_str()), Some("node-1"));
    // The node was lost 2 s after the start and joined again a little after 7 s.
    let since = |ns: i64| (ns - EPOCH_NS) as f64 / 1e9;
    let back = since(failures[0].back.expect("it came back").0);
    assert!((7.0..7.5).contains(&back), "{back}");
    assert!(failures[0].recovered.is_some());
    let lost: Vec<_> = all!(records, Interval)
        .filter(|interval| interval.state == "lost")
        .collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].node.as_str(), "node-1");
    assert!((1.5..=2.0).contains(&since(lost[0].from.0)), "since it last spoke");
    assert!((since(lost[0].to.0) - back).abs() < 1e-9 && !lost[0].is_cut);
    let attempts: Vec<_> = all!(records, Attempt)
        .map(|attempt| (attempt.ranks, attempt.state, attempt.kind))
        .collect();
    assert_eq!(
        attempts,
        [
            (6, "node_fail", "start"),
            (4, "other", "shrink"),
            (6, "completed", "grow")
        ]
    );
    let jobs: Vec<_> = all!(records, Job)
        .map(|job| (job.state, job.ranks, job.step.map(|step| step.0)))
        .collect();
    assert_eq!(jobs, [("completed", Some(6), Some(220))]);
    let counts: Vec<u64> = records
        .iter()
        .filter_map(|one| match one {
            JournalRecord::Usable { nodes, .. } => Some(*nodes),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [1, 2, 3, 2, 3]);
    // Every node's time is covered once, from its first join to the end.
    for node in all!(records, Node) {
        let mut at = node.joined;
        for interval in all!(records, Interval).filter(|interval| interval.node == node.node) {
            assert_eq!(interval.from, at);
            at = interval.to;
        }
        assert_eq!(Some(at), end.last);
    }
}

#[test]
fn a_lost_gpu_keeps_its_node_away_until_the_end_and_a_bug_ends_the_job() {
    let (_, gpu) = analysis(&of_sim("gpu-lost"));
    let failure = all!(gpu, Failure).next().expect("a failure");
    assert_eq!(failure.class.as_str(), "gpu-fallen-off-bus");
    assert_eq!((failure.back, failure.scope.to_string().as_str()), (None, "node"));
    assert!(all!(gpu, Interval).any(|interval| interval.state == "cordoned" && interval.is_cut));
    let (_, bug) = analysis(&of_sim("user-bug"));
    let job = all!(bug, Job).next().expect("a job");
    assert_eq!(job.state, "failed");
    assert!(all!(bug, Failure).count() >= 2, "it came back after its retry");
    assert!(all!(bug, Failure).all(|failure| failure.scope.to_string() == "process" && failure.back.is_none()));
    assert_eq!(
        all!(bug, Attempt).map(|attempt| attempt.state).collect::<Vec<_>>(),
        ["failed", "failed"]
    );
}

#[test]
fn what_was_made_up_says_so() {
    let made_up = |event: &mut Event| {
        if let Event::EvidenceArrived { evidence } = event {
            evidence.synthetic = true;
        }
    };
    let (_, all) = analysis_of(&of_sim("gpu-lost"), made_up);
    assert!(all!(all, Failure).all(|failure| failure.is_synthetic) && all!(all, Failure).count() == 1);
    let (_, all) = analysis(&of_sim("gpu-lost"));
    assert!(all!(all, Failure).all(|failure| !failure.is_synthetic));
}
