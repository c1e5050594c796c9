//! End-to-end test of the offline path on labelled logs: figures, and minimum values for them. Skipped if the logs are
//! missing.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rankguard_files::{ReadBudget, ReadLimits};
use serde::Deserialize;

use super::{Rules, conclude};

#[derive(Deserialize)]
struct TruthRecord {
    id: String,
    label: String,
    layer: String,
    root_rank: Option<u32>,
    multi_rank: bool,
}

fn shared(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared")
        .join(name);
    if !path.exists() {
        // Written to the stream directly: the harness hides the output of macros when a test passes.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: {} is not there, so nothing was measured\n", path.display()),
        );
        return None;
    }
    Some(path)
}

/// Maps fine to coarse classes, from the table of the labelled logs.
fn crosswalk(table: &str) -> BTreeMap<&str, &str> {
    table
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.strip_prefix("| ")?.split(" | ").collect();
            match cells[..] {
                [fine, _, coarse, ..] if coarse != "-" && !coarse.is_empty() => Some((fine, coarse)),
                _ => None,
            }
        })
        .collect()
}

/// Bins of confidence in which the share of right verdicts must reach the lower edge.
const BINS: [(f64, f64); 5] = [(0.0, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.0)];

#[derive(Debug, Default)]
struct AccuracyTally(BTreeMap<&'static str, (usize, usize)>);

impl AccuracyTally {
    fn count(&mut self, what: &'static str, right: bool) {
        let (hits, of) = self.0.entry(what).or_default();
        *hits += usize::from(right);
        *of += 1;
    }

    fn share(&self, what: &str) -> f64 {
        self.0
            .get(what)
            .map_or(0.0, |(hits, of)| *hits as f64 / (*of).max(1) as f64)
    }
}

#[test]
fn labelled_logs_are_named_as_well_as_was_measured() {
    let Some(path) = shared("failure-logs/dev.jsonl") else {
        return;
    };
    let table = fs::read_to_string(path.with_file_name("classes.md")).unwrap();
    let coarse = crosswalk(&table);
    let up = |class: &str| coarse.get(class).copied().unwrap_or(class).to_owned();
    let found = conclude(
        std::slice::from_ref(&path),
        &BTreeMap::new(),
        &Rules::default(),
        &ReadBudget::begin(ReadLimits::default()),
        false,
    );
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    let said: BTreeMap<_, _> = found.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let mut tally = AccuracyTally::default();
    let mut bins = BINS.map(|bin| (bin, (0_u32, 0_u32)));
    for line in fs::read_to_string(path).unwrap().lines() {
        let truth: TruthRecord = serde_json::from_str(line).unwrap();
        let case = said[truth.id.as_str()];
        let right = case.class == truth.label;
        tally.count("class", right);
        if let Some((_, bin)) = bins.iter_mut().rev().find(|((from, _), _)| case.confidence >= *from)
            && case.class != "none"
        {
            *bin = (bin.0 + u32::from(right), bin.1 + 1);
        }
        tally.count("crosswalk", up(&case.class) == up(&truth.label));
        tally.count("layer", case.layer == truth.layer);
        if truth.label == "none" {
            tally.count("quiet where nothing failed", case.class == "none");
        } else {
            tally.count("answered", case.class != "none" && case.class != "unknown");
        }
        match truth.root_rank {
            Some(rank) => tally.count("root rank", case.root_rank.map(|rank| rank.0) == Some(rank)),
            None if truth.multi_rank => tally.count("no rank claimed", case.root_rank.is_none()),
            None => {}
        }
    }
    for ((from, to), (right, of)) in bins {
        eprintln!("confidence {from:.2} to {to:.2}: {right} of {of}");
        // One wrong case is tolerated, for small bins.
        let lowest = from * f64::from(of) - 1.0;
        assert!(f64::from(right) >= lowest, "confidence {from} to {to}: {right} of {of}");
    }
    for (what, (hits, of)) in &tally.0 {
        eprintln!("{what:<28} {hits:>4}/{of:<4} {:.3}", tally.share(what));
    }
    for (what, floor) in FLOORS {
        assert!(
            tally.share(what) >= floor,
            "{what}: {:.3} is below {floor}",
            tally.share(what)
        );
    }
}

/// Minimum values, a little below the measured ones, to detect a change that costs several cases.
const FLOORS: [(&str, f64); 7] = [
    ("class", 0.90),
    ("crosswalk", 0.91),
    ("layer", 0.84),
    ("quiet where nothing failed", 0.94),
    ("answered", 0.95),
    ("root rank", 0.83),
    ("no rank claimed", 0.94),
];

#[test]
fn kernel_logs_of_real_nodes_give_the_cases_a_person_reads_in_them() {
    let Some(path) = shared("datasets/gpud-node-logs") else {
        return;
    };
    let found = conclude(
        &[path],
        &BTreeMap::new(),
        &Rules::default(),
        &ReadBudget::begin(ReadLimits::default()),
        false,
    );
    let mut told: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for case in &found.cases {
        let file = case.id.rsplit('/').next().unwrap().to_owned();
        eprintln!(
            "{file}: {} ({}), blamed {}, confidence {:.2}",
            case.class, case.layer, case.blamed, case.confidence
        );
        told.entry(file).or_default().push(&case.class);
    }
    let has = |file: &str, class: &str| told.get(file).is_some_and(|classes| classes.contains(&class));
    assert!(has("dmesg-with-xid-119.log", "gpu-gsp-timeout"));
    assert_eq!(
        told["dmesg-with-xid-119.log"].len(),
        1,
        "five lines are one failing GPU"
    );
    assert!(has("dmesg-memory-xid13.iso.log", "gpu-engine-exception"));
    assert!(has("dmesg-memory-xid13.iso.log", "host-oom-kill"));
    assert!(has("dmesg-nccl-segfault.iso.log", "segfault"));
    assert!(has("fabricmanager.log", "nvswitch-error"));
    assert!(
        told.keys()
            .any(|file| file.starts_with("dmesg-erst") && has(file, "kernel-crash"))
    );
    assert!(
        found
            .problems
            .iter()
            .any(|problem| problem.contains("tar.gz: an archive"))
    );
    for quiet in [
        "kmsg.2.peermem.log",
        "nvidia-smi.nvlink.status.a100",
        "README.md",
        "LICENSE",
    ] {
        assert!(!told.contains_key(quiet), "{quiet}: {:?}", told.get(quiet));
    }
}
