//! How long repair takes, by cause.

use std::sync::Arc;

use rankguard_datasets::{Dataset, Labels, Table as Canonical};
use rankguard_statistics::groups::Groups;
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
pub(crate) struct ByCause {
    labels: Arc<Labels>,
    times: Groups,
}

impl ByCause {
    pub(crate) fn of(data: &Dataset, by: &str) -> Result<Self, StudyError> {
        let labels = data.labels(Canonical::Failures, by)?;
        let times = data.numbers(Canonical::Failures, "repair_s")?;
        let found = Self {
            times: Groups::of(&labels.of, labels.counts(), &times),
            labels,
        };
        if found.causes().is_empty() {
            return Err(StudyError::missing(
                "no failure of this data has a repair time: no MTTR",
                "give data whose failures have an end or an elapsed repair time (repair_s)",
            ));
        }
        Ok(found)
    }

    /// Causes that have any, by name, after those without one.
    pub(crate) fn causes(&self) -> Vec<(&str, &[f64])> {
        let mut named: Vec<(&str, &[f64])> = (0..)
            .zip(&self.labels.names)
            .map(|(label, name)| (name.as_str(), self.times.labelled(label)))
            .collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        named.insert(0, ("(none)", self.times.without()));
        named.retain(|(_, times)| !times.is_empty());
        named
    }
}

fn run(data: &Dataset, options: &Options) -> Result<Outcome, StudyError> {
    let by = options.by("class");
    let found = ByCause::of(data, by)?;
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
    let mut bars = Vec::new();
    let causes = found.causes();
    let all: Vec<&[f64]> = causes.iter().map(|(_, times)| *times).collect();
    let each = causes.iter().map(|(cause, times)| (*cause, Summary::of(times)));
    for (cause, summary) in each.chain([("all", Summary::of_parts(&all))]) {
        let Some(summary) = summary else {
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
