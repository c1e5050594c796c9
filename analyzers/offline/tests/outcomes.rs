//! Runs that ended well and runs that failed: effect of a stated end, and of work after an alarm, on the verdict.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::common;
use rankguard_model::Rank;
use rankguard_offline::{CaseRecord, RecordStream};

/// Log with the answer of its author.
struct Labelled {
    id: String,
    class: String,
    root: Option<Rank>,
    sources: Vec<RecordStream>,
}

/// Reads `=== id class kind [root=N]`, `--- kind [rank=N]` and lines.
fn labelled(text: &str) -> Vec<Labelled> {
    let mut all: Vec<Labelled> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("=== ") {
            let words: Vec<&str> = head.split(' ').collect();
            let root = words.iter().find_map(|word| word.strip_prefix("root="));
            all.push(Labelled {
                id: words[0].to_owned(),
                class: words[1].to_owned(),
                root: root.map(|root| Rank(root.parse().unwrap())),
                sources: vec![common::stream(words[2], None, "")],
            });
            continue;
        }
        let Some(last) = all.last_mut() else { continue };
        let stream = line.strip_prefix("--- ").filter(|head| !head.contains("--"));
        if let Some(head) = stream {
            let (kind, rank) = head.split_once(" rank=").unwrap();
            last.sources.retain(|source| !source.lines.is_empty());
            last.sources.push(common::stream(kind, rank.parse().ok(), ""));
        } else {
            last.sources.last_mut().unwrap().lines.push(line.to_owned());
        }
    }
    all
}

/// Counts of silent answers, correct classes and correct first ranks, each with its total.
#[derive(Debug, Default, PartialEq)]
struct Score {
    silent: (usize, usize),
    named: (usize, usize),
    root: (usize, usize),
}

fn count(score: &mut (usize, usize), right: bool) {
    score.0 += usize::from(right);
    score.1 += 1;
}

fn measure(text: &str) -> Score {
    let mut score = Score::default();
    for truth in labelled(text) {
        let id = truth.id.clone();
        let case = CaseRecord {
            id: truth.id,
            sources: truth.sources,
        }
        .classify();
        let right = case.class == truth.class;
        if truth.class == "none" {
            count(&mut score.silent, right);
        } else {
            count(&mut score.named, right);
        }
        if let Some(root) = truth.root {
            count(&mut score.root, case.root_rank == Some(root));
        }
        if !right || truth.root.is_some() && case.root_rank != truth.root {
            eprintln!("{id}: {} for {}, rank {:?}", case.class, truth.class, case.root_rank);
        }
    }
    score
}

#[test]
fn open_logs_are_silent_where_runs_ended_well_and_named_where_not() {
    let score = measure(include_str!("outcomes/open.txt"));
    assert_eq!(score.silent, (42, 42));
    assert_eq!(score.named, (40, 40));
    assert_eq!(score.root, (11, 11));
}

/// Confidence bins for correct classes: lower edge, upper edge.
const BINS: [(f64, f64); 4] = [(0.0, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 1.0)];

#[test]
fn held_back_logs_keep_what_was_measured() {
    let score = measure(include_str!("outcomes/held.txt"));
    assert_eq!(score.silent, (10, 10));
    assert!(score.named.0 >= 9, "{score:?}");
    assert!(score.root.0 >= 5, "{score:?}");
}

#[test]
fn confidence_is_not_above_the_share_of_right_verdicts() {
    let text = [include_str!("outcomes/open.txt"), include_str!("outcomes/held.txt")].concat();
    let mut bins = [(0, 0); BINS.len()];
    for truth in labelled(&text) {
        let id = truth.id.clone();
        let case = CaseRecord {
            id,
            sources: truth.sources,
        }
        .classify();
        if case.class == "none" {
            continue;
        }
        let bin = BINS.iter().rposition(|(from, _)| case.confidence >= *from).unwrap();
        count(&mut bins[bin], case.class == truth.class);
    }
    for ((from, to), (right, of)) in BINS.iter().zip(bins) {
        eprintln!("{from:.2} to {to:.2}: {right} of {of}");
        // One case of a small bin may be wrong.
        let lowest = from * f64::from(of as u32) - 1.0;
        assert!(f64::from(right as u32) >= lowest, "{from} to {to}: {right} of {of}");
    }
    assert!(bins.iter().map(|(_, of)| of).sum::<usize>() >= 25, "{bins:?}");
}

#[test]
fn verdict_without_an_end_of_the_run_is_not_sure() {
    let alarm = "OSError: [Errno 28] No space left on device";
    let more = "reading shard\n".repeat(12);
    let open = common::case(vec![common::stream("rank-stderr", None, &format!("{alarm}\n{more}"))]);
    let ended = common::case(vec![common::stream(
        "rank-stderr",
        None,
        &format!("{alarm}\n{more}srun: error: n1: task 0: Exited with exit code 1"),
    )]);
    assert_eq!(common::named(&open), common::named(&ended));
    assert!(open.confidence < 0.7, "{}", open.confidence);
    assert!(ended.confidence > open.confidence, "{}", ended.confidence);
}

#[test]
fn job_that_the_scheduler_completed_excuses_its_ranks_and_no_machine() {
    let state = "JobId=5 JobName=a\n   JobState=COMPLETED Reason=None";
    let rank = "OSError: [Errno 28] No space left on device";
    let with = |kind: &str, text: &str| {
        let streams = vec![
            common::stream("scheduler", None, state),
            common::stream(kind, Some(1), text),
        ];
        common::case(streams).class
    };
    assert_eq!(with("rank-stderr", rank), "none");
    assert_eq!(
        with("kmsg", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
        "gpu-fallen-off-bus"
    );
    let failed = state.replace("COMPLETED", "FAILED");
    let streams = vec![
        common::stream("scheduler", None, &failed),
        common::stream("rank-stderr", Some(1), rank),
    ];
    assert_eq!(common::case(streams).class, "disk-full");
}
