//! Failures close in time to another at the same node or rack.

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::neighbours;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::studies::{Study, StudyOptions};

pub(super) const STUDY: Study = Study {
    name: "correlated",
    about: "share of failures with another on the same node or rack within a window",
    needs: "failures: time, node; x_rack where there are racks",
    run,
};

/// Counts, for each window, the failures with another at the same place of this column within it; returns also the
/// number with a time.
pub(crate) fn close(data: &Dataset, place: &str, windows: &[f64]) -> Result<(Vec<usize>, usize), StudyError> {
    let times = data.numbers(Canonical::Failures, "time")?;
    let all = data.known(Canonical::Failures, "time")? as usize;
    let places = data.labels(Canonical::Failures, place)?;
    Ok((neighbours::close(&places.of, places.names.len(), &times, windows), all))
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let mut outcome = StudyResult::new(
        "correlated",
        data,
        "a failure counts when the previous or the next one of its place is not more than the window away; shares of all failures with a time",
    );
    let mut table = ResultTable::new(
        "failures with another close by",
        &["place", "window s", "failures", "of", "share"],
    );
    let windows = options
        .window_s
        .map_or(vec![60.0, 1_800.0, 86_400.0], |window| vec![window]);
    let places: Vec<&str> = options.by.as_deref().map_or(vec!["node", "x_rack"], |by| vec![by]);
    for place in places
        .iter()
        .filter(|place| **place != "x_rack" || data.labels(Canonical::Failures, "x_rack").is_ok())
    {
        let (counts, all) = close(data, place, &windows)?;
        for (window, count) in windows.iter().zip(counts) {
            table.row([
                (*place).into(),
                (*window).into(),
                count.into(),
                all.into(),
                (count as f64 / all as f64).into(),
            ]);
        }
    }
    outcome.tables.push(table);
    Ok(outcome)
}
