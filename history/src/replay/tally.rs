//! Statistics of a replay: cases, agreement with labels, delays, differences between catalogues.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_diagnosis::ConcludedDraft;
use rankguard_faults::classes;
use rankguard_model::{Case, Classification, EvidenceSource, Role, Timestamp};
use serde::Serialize;

use super::CASES;
use super::item::ReplayItem;

/// Counts by name.
pub(super) type NamedCounts = BTreeMap<String, u64>;

/// Maximum number of problems that are retained; further ones are counted.
const PROBLEMS: usize = 200;

/// Case in the list.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CaseLine {
    /// Start in seconds of the log's clock.
    pub(super) first_s: f64,
    /// Time from its start to its conclusion in seconds of the log's clock.
    pub(super) delay_s: f64,
    pub(super) class: String,
    pub(super) blamed: String,
    pub(super) confidence: f64,
    pub(super) findings: usize,
    pub(super) headline: String,
}

/// Agreement with labels of failure or no failure.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct ConfusionCounts {
    pub(super) true_positive: u64,
    pub(super) false_positive: u64,
    pub(super) false_negative: u64,
    pub(super) true_negative: u64,
}

impl ConfusionCounts {
    pub(super) fn precision(self) -> Option<f64> {
        let positive = self.true_positive + self.false_positive;
        (positive > 0).then(|| self.true_positive as f64 / positive as f64)
    }

    pub(super) fn recall(self) -> Option<f64> {
        let there = self.true_positive + self.false_negative;
        (there > 0).then(|| self.true_positive as f64 / there as f64)
    }
}

/// Lines with different classes under the two catalogues.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ClassDifference {
    pub(super) before: String,
    pub(super) after: String,
    pub(super) lines: u64,
    pub(super) example: String,
}

/// Statistics of one replay.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplayTally {
    pub(super) lines: u64,
    /// Number of lines that go back in time, have no clock, or do not match the format of their
    /// log.
    pub(super) back: u64,
    pub(super) untimed: u64,
    pub(super) odd: u64,
    pub(super) evidence: u64,
    /// Number of lines of files of cases that are no cases.
    pub(super) unread_cases: u64,
    /// Sources of the evidence of logs.
    pub(super) sources: BTreeSet<EvidenceSource>,
    pub(super) seconds: f64,
    /// Cases by class, for each catalogue.
    pub(super) classes: [NamedCounts; 2],
    pub(super) listed: Vec<CaseLine>,
    /// Delays in buckets of a tenth of a second.
    delays: BTreeMap<u64, u64>,
    pub(super) lines_judged: ConfusionCounts,
    pub(super) lines_by_label: BTreeMap<(String, String), u64>,
    /// Number of labelled cases by (label, class).
    pub(super) confusion: BTreeMap<(String, String), u64>,
    pub(super) cases_judged: ConfusionCounts,
    pub(super) named_right: u64,
    /// Agreement under the second catalogue.
    pub(super) against_judged: ConfusionCounts,
    pub(super) against_right: u64,
    pub(super) differences: BTreeMap<(String, String), ClassDifference>,
    pub(super) problems: Vec<String>,
    more_problems: u64,
}

/// Returns true if a classification indicates a failure.
fn alarming(marks: &[Classification]) -> bool {
    marks.iter().any(|mark| mark.role != Role::Noise)
}

fn top(marks: &[Classification]) -> String {
    marks
        .iter()
        .find(|mark| mark.role != Role::Noise)
        .map_or("none".to_owned(), |mark| mark.class.to_string())
}

impl ReplayTally {
    pub(super) fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(text);
        } else {
            self.more_problems += 1;
        }
    }

    pub(super) fn first_problem(&self) -> String {
        self.problems.first().cloned().unwrap_or_else(|| "no log".to_owned())
    }

    /// Returns the problems, and the number of others.
    pub(super) fn problem_texts(&self) -> Vec<String> {
        let mut texts = self.problems.clone();
        for (count, what) in [
            (self.more_problems, "more problems"),
            (self.back, "lines are out of order; the clock is not set back"),
            (
                self.untimed,
                "classified lines have no clock and use that of the previous line",
            ),
            (self.odd, "lines do not have the format of their log and are skipped"),
        ] {
            if count > 0 {
                texts.push(format!("{count} {what}"));
            }
        }
        texts
    }

    /// Counts a labelled line and its classification by the first catalogue.
    pub(super) fn judge(&mut self, label: Option<&str>, marks: &[Classification]) {
        let is_alarming = alarming(marks);
        count(&mut self.lines_judged, label.is_some(), is_alarming);
        if label.is_some() || is_alarming {
            let label = label.unwrap_or("none").to_owned();
            *self.lines_by_label.entry((label, top(marks))).or_default() += 1;
        }
    }

    /// Counts a labelled case and its verdict.
    pub(super) fn judge_case(&mut self, label: &str, class: &str) {
        count(&mut self.cases_judged, label != "none", class != classes::NONE);
        self.named_right += u64::from(label == class);
        *self.confusion.entry((label.to_owned(), class.to_owned())).or_default() += 1;
    }

    /// Counts the same case under the second catalogue.
    pub(super) fn judge_case_against(&mut self, label: &str, class: &str) {
        count(&mut self.against_judged, label != "none", class != classes::NONE);
        self.against_right += u64::from(label == class);
    }

    /// Counts a case of a journal that the whole decision core concluded.
    pub(super) fn settled(&mut self, which: usize, case: &Case) {
        let class = case.verdict.class.to_string();
        *self.classes[which].entry(class.clone()).or_default() += 1;
        if which > 0 {
            return;
        }
        let delay_s = case.opened_at.0.saturating_sub(case.first_at.0) as f64 / 1e9;
        self.list(CaseLine {
            first_s: case.first_at.0 as f64 / 1e9,
            delay_s,
            class,
            blamed: case.verdict.blamed.to_string(),
            confidence: case.verdict.confidence,
            findings: case.findings.len(),
            headline: case
                .reasoning
                .first()
                .map(|reason| reason.text.clone())
                .unwrap_or_default(),
        });
    }

    fn list(&mut self, line: CaseLine) {
        *self
            .delays
            .entry((line.delay_s.clamp(0.0, 1e9) * 10.0) as u64)
            .or_default() += 1;
        if self.listed.len() < CASES {
            self.listed.push(line);
        }
    }

    pub(super) fn conclude(&mut self, which: usize, case: &ConcludedDraft, now: Timestamp) {
        let class = case.verdict.class.to_string();
        *self.classes[which].entry(class.clone()).or_default() += 1;
        if which > 0 {
            return;
        }
        let delay_s = now.0.saturating_sub(case.first_at.0) as f64 / 1e9;
        self.list(CaseLine {
            first_s: case.first_at.0 as f64 / 1e9,
            delay_s,
            class,
            blamed: case.verdict.blamed.to_string(),
            confidence: case.verdict.confidence,
            findings: case.findings.len(),
            headline: case.headline.clone(),
        });
    }

    /// Counts an item with different classes under the two catalogues.
    pub(super) fn differ(&mut self, item: &ReplayItem) {
        let [before, after] = &item.marks[..] else { return };
        self.differ_in(top(before), top(after), &item.text);
    }

    /// Counts an example with different classes under the two catalogues.
    pub(super) fn differ_in(&mut self, before: String, after: String, example: &str) {
        if before == after {
            return;
        }
        let entry = self.differences.entry((before.clone(), after.clone()));
        let known = entry.or_insert_with(|| ClassDifference {
            before,
            after,
            lines: 0,
            example: example.chars().take(160).collect(),
        });
        known.lines += 1;
    }

    pub(super) fn cases(&self) -> u64 {
        self.classes[0].values().sum()
    }

    /// Returns the delay in seconds, to a tenth, that this share of cases does not exceed.
    pub(super) fn delay(&self, share: f64) -> Option<f64> {
        let all: u64 = self.delays.values().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.delays.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen >= wanted).then_some(*bucket as f64 / 10.0)
        })
    }
}

fn count(table: &mut ConfusionCounts, is_labelled: bool, is_alarming: bool) {
    let cell = match (is_labelled, is_alarming) {
        (true, true) => &mut table.true_positive,
        (false, true) => &mut table.false_positive,
        (true, false) => &mut table.false_negative,
        (false, false) => &mut table.true_negative,
    };
    *cell += 1;
}
