//! Agreement of templates with the labels of loghub-2k, ten systems of 2,000 lines each.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the crate is pure, its tests read files"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use rankguard_templates::{Miner, MinerLimits, families, shape};

/// Minimum grouping accuracy and pairwise F-measure of each system.
const FLOORS: &[(&str, f64, f64)] = &[
    ("Apache", 1.0, 1.0),
    ("BGL", 0.98, 0.99),
    ("HDFS", 0.99, 0.99),
    ("Hadoop", 0.98, 0.99),
    ("Linux", 0.98, 0.99),
    ("OpenSSH", 0.98, 0.99),
    ("OpenStack", 0.98, 0.99),
    ("Spark", 0.98, 0.99),
    ("Thunderbird", 0.97, 0.99),
    ("Zookeeper", 0.98, 0.99),
];
/// Result of Drain3 with settings chosen for each system (`benches/peer_drain3.py quality`).
const DRAIN3_TUNED_MEAN: f64 = 0.896;

fn report(line: std::fmt::Arguments) {
    let _ = std::io::stderr().write_fmt(format_args!("{line}\n"));
}

/// Rows of a CSV file with quotes; no field of these files holds a line end.
fn rows(text: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let mut fields = vec![String::new()];
        let mut quoted = false;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => fields.last_mut().unwrap().extend(chars.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                c => fields.last_mut().unwrap().push(c),
            }
        }
        fields
    };
    text.lines().map(|line| row(line.trim_end_matches('\r'))).collect()
}

/// Grouping accuracy (the share of lines whose group is exactly a labelled group) and pairwise F-measure.
fn score(truth: &[String], guess: &[String]) -> (f64, f64) {
    let mut cells = BTreeMap::new();
    let mut truths = BTreeMap::new();
    let mut guesses = BTreeMap::new();
    for (truth, guess) in truth.iter().zip(guess) {
        *cells.entry((guess, truth)).or_insert(0_u64) += 1;
        *truths.entry(truth).or_insert(0_u64) += 1;
        *guesses.entry(guess).or_insert(0_u64) += 1;
    }
    let right: u64 = cells
        .iter()
        .filter(|((g, t), n)| guesses[g] == **n && truths[t] == **n)
        .map(|(_, n)| n)
        .sum();
    let pairs = |counts: &mut dyn Iterator<Item = &u64>| counts.map(|n| n * (n - 1) / 2).sum::<u64>() as f64;
    let both = pairs(&mut cells.values());
    let precision = both / pairs(&mut guesses.values());
    let recall = both / pairs(&mut truths.values());
    (
        right as f64 / truth.len() as f64,
        2.0 * precision * recall / (precision + recall),
    )
}

#[test]
fn the_score_is_the_one_of_the_benchmark() {
    let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(score(&names("a a b b"), &names("1 1 2 2")), (1.0, 1.0));
    let (accuracy, f) = score(&names("a a b b"), &names("1 1 2 3"));
    assert_eq!(accuracy, 0.5);
    assert!((f - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(score(&names("a a b b"), &names("1 1 1 1")).0, 0.0);
}

#[test]
fn templates_agree_with_the_labels_of_ten_systems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets/loghub-2k");
    if !folder.exists() {
        report(format_args!(
            "SKIPPED: quality on loghub-2k, {} is absent",
            folder.display()
        ));
        return;
    }
    report(format_args!(
        "{:<12} {:>6} {:>6} {:>9} {:>7}",
        "system", "GA", "F", "templates", "labels"
    ));
    let mut mean_accuracy = 0.0;
    let mut mean_f = 0.0;
    let mut low = Vec::new();
    for (system, accuracy_floor, f_floor) in FLOORS {
        let text =
            std::fs::read_to_string(folder.join(system).join(format!("{system}_2k.log_structured.csv"))).unwrap();
        let rows = rows(&text);
        let column = |name: &str| rows[0].iter().position(|field| field == name).unwrap();
        let content = column("Content");
        let event = column("EventId");
        let truth: Vec<String> = rows[1..].iter().map(|row| row[event].clone()).collect();

        let mut miner = Miner::new(system, MinerLimits::default());
        let stream = miner.stream("log", "log");
        for (n, row) in rows[1..].iter().enumerate() {
            miner.learn(stream, n as u64 + 1, row[content].as_bytes());
        }
        let profile = miner.profile();
        assert_eq!(profile.shortfalls.pressure, 0);
        let texts: Vec<&str> = profile
            .templates
            .iter()
            .map(|template| template.text.as_str())
            .collect();
        let families = families(&texts);
        let mut family_of = BTreeMap::new();
        for family in &families {
            family
                .members
                .iter()
                .for_each(|member| _ = family_of.insert(texts[*member], family.id().to_string()));
        }
        // No place of these samples has more words than a node keeps apart: a line's shape is its template.
        let name = |row: &Vec<String>| {
            family_of[shape(row[content].as_bytes(), MinerLimits::default()).unwrap().as_str()].clone()
        };
        let guess: Vec<String> = rows[1..].iter().map(name).collect();

        let (accuracy, f) = score(&truth, &guess);
        let labels = truth.iter().collect::<std::collections::BTreeSet<_>>().len();
        report(format_args!(
            "{system:<12} {accuracy:>6.3} {f:>6.3} {:>9} {labels:>7}",
            families.len()
        ));
        if accuracy < *accuracy_floor || f < *f_floor {
            low.push(*system);
        }
        mean_accuracy += accuracy / FLOORS.len() as f64;
        mean_f += f / FLOORS.len() as f64;
    }
    report(format_args!("{:<12} {mean_accuracy:>6.3} {mean_f:>6.3}", "mean"));
    assert!(low.is_empty(), "below the floor: {low:?}");
    assert!(mean_accuracy >= DRAIN3_TUNED_MEAN);
}
