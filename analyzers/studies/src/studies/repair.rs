//! Time to repair, by cause.

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::groups::GroupedValues;
use rankguard_statistics::sample::SampleSummary;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::plot::{PlotContent, StudyPlot};
use crate::studies::{Study, StudyOptions};

pub(super) const STUDY: Study = Study {
    name: "repair",
    about: "time to repair by class, or by any column: mean, median, deviation, C2",
    needs: "failures: repair_s, class",
    run,
};

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let by = options.by("class");
    let labels = data.labels(Canonical::Failures, by)?;
    let times = data.numbers(Canonical::Failures, "repair_s")?;
    let times = GroupedValues::of(&labels.of, labels.counts(), &times);
    let (each, all) = SampleSummary::of_each(&times.each().collect::<Vec<_>>());
    if all.is_none() {
        return Err(StudyError::missing(
            "no failure of this data has a repair time: no MTTR",
            "give data whose failures have an end or an elapsed repair time (repair_s)",
        ));
    }
    let names = std::iter::once("(none)").chain(labels.names.iter().map(String::as_str));
    let mut causes: Vec<(&str, Option<SampleSummary>)> = names.zip(each).collect();
    causes[1..].sort_unstable_by_key(|(name, _)| *name);
    causes.push(("all", all));
    let mut outcome = StudyResult::new(
        "repair",
        data,
        "repair_s of each failure that has one, the source's own elapsed time where it has one; sample deviation; C2 is variance over squared mean; one failure has neither",
    );
    let mut table = ResultTable::new(
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
    for (cause, summary) in causes {
        let Some(summary) = summary else {
            continue;
        };
        let hours = |seconds: f64| (seconds / 3_600.0).into();
        table.row([
            cause.into(),
            summary.count.into(),
            hours(summary.mean),
            hours(summary.median),
            summary.deviation.map(|seconds| seconds / 3_600.0).into(),
            summary.c2.into(),
            hours(summary.max),
        ]);
        bars.push((cause.to_owned(), summary.mean / 3_600.0));
    }
    outcome.tables.push(table);
    outcome.plots.push(StudyPlot {
        title: format!("mean time to repair by {by}"),
        across: "hours".to_owned(),
        shape: PlotContent::Bars(bars),
    });
    Ok(outcome)
}
