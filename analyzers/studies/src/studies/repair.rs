//! How long repair takes, by cause.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, Table as Canonical};
use rankguard_statistics::sample::Summary;

use crate::error::StudyError;
use crate::outcome::{Outcome, Table};
use crate::plot::{Plot, Shape};
use crate::studies::{Options, Study};

pub(super) const STUDY: Study = Study {
    name: "repair",
    about: "time to repair by class, or by any column: mean, median, deviation, C2",
    needs: "failures: repair_s, class",
    run,
};

/// Repair times in seconds by a column of failures.
pub(crate) fn by_cause(data: &Dataset, by: &str) -> Result<BTreeMap<Option<String>, Vec<f64>>, StudyError> {
    let times = data.numbers(Canonical::Failures, "repair_s")?;
    let labels = data.labels(Canonical::Failures, by)?;
    let (counts, _) = labels.counts();
    let mut by_label: Vec<Vec<f64>> = counts.iter().map(|count| Vec::with_capacity(*count as usize)).collect();
    let mut without = Vec::new();
    for (cause, time) in labels.of.iter().zip(times.iter()).filter(|(_, time)| !time.is_nan()) {
        match cause {
            Some(cause) => by_label[*cause as usize].push(*time),
            None => without.push(*time),
        }
    }
    let named = labels.names.iter().cloned().map(Some).zip(by_label);
    let mut causes: BTreeMap<Option<String>, Vec<f64>> = named.chain([(None, without)]).collect();
    causes.retain(|_, times| !times.is_empty());
    if causes.is_empty() {
        return Err(StudyError::missing(
            "no failure of this data has a repair time: no MTTR",
            "give data whose failures have an end or an elapsed repair time (repair_s)",
        ));
    }
    Ok(causes)
}

fn run(data: &Dataset, options: &Options) -> Result<Outcome, StudyError> {
    let by = options.by("class");
    let causes = by_cause(data, by)?;
    let mut outcome = Outcome::new(
        "repair",
        data,
        "repair_s of each failure that has one, the source's own elapsed time where it has one; sample deviation; C2 is variance over squared mean",
    );
    let mut table = Table::new(
        format!("time to repair by {by}"),
        &[
            "cause",
            "failures",
            "mean h",
            "median h",
            "deviation h",
            "C2",
            "longest h",
        ],
    );
    let all = data.numbers(Canonical::Failures, "repair_s")?;
    let mut bars = Vec::new();
    let each = causes
        .iter()
        .map(|(cause, times)| (cause.as_deref().unwrap_or("(none)"), times));
    for (cause, times) in each.chain([("all", &*all)]) {
        let Some(summary) = Summary::of(times) else {
            continue;
        };
        let hours = |seconds: f64| (seconds / 3_600.0).into();
        table.row([
            cause.into(),
            summary.count.into(),
            hours(summary.mean),
            hours(summary.median),
            hours(summary.deviation),
            summary.c2.into(),
            hours(summary.max),
        ]);
        bars.push((cause.to_owned(), summary.mean / 3_600.0));
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot {
        title: format!("mean time to repair by {by}"),
        across: "hours".to_owned(),
        shape: Shape::Bars(bars),
    });
    Ok(outcome)
}
