//! Output of a replay as text or JSON.

use std::collections::BTreeMap;

use rankguard_console::OutputFormat;
use rankguard_console::display_text::count;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::out;
use serde::Serialize;

use super::tally::{CaseLine, ClassDifference, ConfusionCounts, ReplayTally};

/// Number of cases of one class.
#[derive(Debug, Serialize)]
struct ClassLine {
    class: String,
    cases: u64,
    against: Option<u64>,
}

/// Number of cases of one label with one class.
#[derive(Debug, Serialize)]
struct ConfusionCell {
    label: String,
    class: String,
    count: u64,
}

/// Agreement with labels.
#[derive(Debug, Serialize)]
struct LabelAgreement {
    #[serde(flatten)]
    counts: ConfusionCounts,
    precision: Option<f64>,
    recall: Option<f64>,
}

/// Whole result, as JSON.
#[derive(Debug, Serialize)]
struct ReplayReport {
    lines: u64,
    evidence: u64,
    seconds: f64,
    lines_per_s: f64,
    evidence_per_s: f64,
    delay_median_s: Option<f64>,
    delay_p99_s: Option<f64>,
    classes: Vec<ClassLine>,
    labelled_lines: Option<LabelAgreement>,
    lines_by_label: Vec<ConfusionCell>,
    labelled_cases: Option<LabelAgreement>,
    named_right: Option<f64>,
    against_cases: Option<LabelAgreement>,
    against_named_right: Option<f64>,
    confusion: Vec<ConfusionCell>,
    differences: Vec<ClassDifference>,
    cases: Vec<CaseLine>,
    problems: Vec<String>,
}

const CLASSES: &[TableColumn<ClassLine>] = &[
    ("class", |line| line.class.clone()),
    ("cases", |line| line.cases.to_string()),
    ("with --against", |line| {
        line.against.map_or(String::new(), |count| count.to_string())
    }),
];

const DIFFERENCES: &[TableColumn<ClassDifference>] = &[
    ("before", |line| line.before.clone()),
    ("after", |line| line.after.clone()),
    ("count", |line| line.lines.to_string()),
    ("example", |line| line.example.clone()),
];

const CELLS: &[TableColumn<ConfusionCell>] = &[
    ("label", |cell| cell.label.clone()),
    ("class", |cell| cell.class.clone()),
    ("count", |cell| cell.count.to_string()),
];

fn agreement(counts: ConfusionCounts) -> Option<LabelAgreement> {
    let all = counts.true_positive + counts.false_positive + counts.false_negative + counts.true_negative;
    (all > 0).then(|| LabelAgreement {
        counts,
        precision: counts.precision(),
        recall: counts.recall(),
    })
}

fn cells(of: &BTreeMap<(String, String), u64>) -> Vec<ConfusionCell> {
    let cell = |((label, class), count): (&(String, String), &u64)| ConfusionCell {
        label: label.clone(),
        class: class.clone(),
        count: *count,
    };
    of.iter().map(cell).collect()
}

fn document(tally: &ReplayTally) -> ReplayReport {
    let diff = !tally.classes[1].is_empty();
    let mut names: Vec<&String> = tally.classes.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let of = |which: usize, name: &String| tally.classes[which].get(name).copied().unwrap_or(0);
    let judged: u64 = tally.confusion.values().sum();
    ReplayReport {
        lines: tally.lines,
        evidence: tally.evidence,
        seconds: tally.seconds,
        lines_per_s: tally.lines as f64 / tally.seconds.max(1e-9),
        evidence_per_s: tally.evidence as f64 / tally.seconds.max(1e-9),
        delay_median_s: tally.delay(0.5),
        delay_p99_s: tally.delay(0.99),
        classes: names
            .into_iter()
            .map(|name| ClassLine {
                class: name.clone(),
                cases: of(0, name),
                against: diff.then(|| of(1, name)),
            })
            .collect(),
        labelled_lines: agreement(tally.lines_judged),
        lines_by_label: cells(&tally.lines_by_label),
        labelled_cases: agreement(tally.cases_judged),
        named_right: (judged > 0).then(|| tally.named_right as f64 / judged as f64),
        against_cases: agreement(tally.against_judged),
        against_named_right: (diff && judged > 0).then(|| tally.against_right as f64 / judged as f64),
        confusion: cells(&tally.confusion),
        differences: tally.differences.values().cloned().collect(),
        cases: tally.listed.clone(),
        problems: tally.problem_texts(),
    }
}

fn counted(number: u64, noun: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

pub(super) fn print(format: OutputFormat, tally: &ReplayTally) {
    let document = document(tally);
    match format {
        OutputFormat::Json => return out::json(&document),
        OutputFormat::Jsonl => {
            document.cases.iter().for_each(out::json_line);
        }
        _ => listing::print(format, &document.classes, CLASSES),
    }
    if format == OutputFormat::Table {
        for (what, found) in [("lines", &document.lines_by_label), ("cases", &document.confusion)] {
            if !found.is_empty() {
                out::line("");
                out::line(&format!("labelled {what}"));
                listing::print(format, found, CELLS);
            }
        }
        if !document.differences.is_empty() {
            out::line("");
            out::line("different classes with --against");
            listing::print(format, &document.differences, DIFFERENCES);
        }
    }
    super::tell(&document.problems);
    let share = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    for (what, found) in [
        ("lines", &document.labelled_lines),
        ("cases", &document.labelled_cases),
        ("cases with --against", &document.against_cases),
    ] {
        if let Some(found) = found {
            out::note(&format!(
                "labelled {what}: precision {}, recall {} (failure or none; {} true positives, {} false positives, {} false negatives, {} true negatives)",
                share(found.precision),
                share(found.recall),
                found.counts.true_positive,
                found.counts.false_positive,
                found.counts.false_negative,
                found.counts.true_negative
            ));
        }
    }
    if let Some(right) = document.named_right {
        out::note(&format!("share of cases with the labelled class: {right:.3}"));
    }
    if let Some(right) = document.against_named_right {
        out::note(&format!(
            "share of cases with the labelled class, with --against: {right:.3}"
        ));
    }
    let delay = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1} s"));
    out::note(&format!(
        "{}, {}, {} in {:.2} s: {:.0} lines/s; delay from first evidence to case, in log time: median {}, 99 % within {}",
        counted(document.lines, "line"),
        counted(document.evidence, "evidence record"),
        counted(tally.cases(), "case"),
        document.seconds,
        document.lines_per_s,
        delay(document.delay_median_s),
        delay(document.delay_p99_s)
    ));
}
