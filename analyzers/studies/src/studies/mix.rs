//! Shares of failures by class or any other column.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, LabelColumn, TableKind as Canonical};
use rankguard_statistics::proportion::ProportionEstimate;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::plot::{PlotContent, StudyPlot};
use crate::studies::{LEVEL, Study, StudyOptions};

pub(super) const STUDY: Study = Study {
    name: "mix",
    about: "shares of failures by class, or by any column (--by)",
    needs: "failures: class",
    run,
};

/// Counts each text, most frequent first; absent ones as `(none)`.
pub(crate) fn counts(values: &[Option<String>]) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for value in values {
        *counts.entry(value.as_deref().unwrap_or("(none)")).or_default() += 1;
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

/// Counts labels, most frequent first; absent ones as `(none)`.
fn counts_of(labels: &LabelColumn) -> Vec<(&str, u64)> {
    let names = labels.names.iter().map(String::as_str);
    let mut counts: Vec<(&str, u64)> = names.zip(labels.counts().iter().copied()).collect();
    counts.extend(Some(("(none)", labels.without())).filter(|(_, count)| *count > 0));
    counts.sort_unstable_by(most_first);
    counts
}

/// Compares counts: most first, equal ones by name.
pub(crate) fn most_first(a: &(&str, u64), b: &(&str, u64)) -> Ordering {
    b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0))
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let by = options.by("class");
    let labels = data.labels(Canonical::Failures, by)?;
    let counts = counts_of(&labels);
    let all = counts.iter().map(|(_, n)| n).sum();
    let definition =
        format!("each row of failures counts once, repeats too; shares of all {all} with Wilson's 95 % interval");
    let mut outcome = StudyResult::new("mix", data, definition);
    let mut table = ResultTable::new(
        format!("failures by {by}"),
        &["value", "failures", "share", "low", "high"],
    );
    let share = ProportionEstimate::at(LEVEL);
    for (name, count) in &counts {
        let share = share(*count, all);
        table.row([
            (*name).into(),
            (*count).into(),
            share.map(|p| p.share).into(),
            share.map(|p| p.low).into(),
            share.map(|p| p.high).into(),
        ]);
    }
    outcome.tables.push(table);
    let bars = counts.into_iter().take(25);
    let bars = bars.map(|(name, n)| (name.to_owned(), n as f64)).collect();
    outcome.plots.push(StudyPlot {
        title: format!("failures by {by}"),
        across: "failures".to_owned(),
        shape: PlotContent::Bars(bars),
    });
    Ok(outcome)
}
