//! Mean time between failures: of all nodes together, and of one node if the population is known.

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::rate::RateEstimate;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::studies::{LEVEL, Study, StudyOptions, length};

pub(super) const STUDY: Study = Study {
    name: "mtbf",
    about: "mean time between failures of the whole and of one node, with exact intervals",
    needs: "failures: time; a population",
    run,
};

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let failures = data.known(Canonical::Failures, "time")?;
    let population = options.population(data)?;
    let hours = length(data)? / 3_600.0;
    let mut outcome = StudyResult::new(
        "mtbf",
        data,
        "rows of failures with a time, over the window, during which all of the population counts as exposed; exact Poisson 95 % intervals",
    );
    let mut table = ResultTable::new(
        "mean time between failures",
        &[
            "of",
            "failures",
            "exposure h",
            "failures per h",
            "low",
            "high",
            "mean h between",
        ],
    );
    for (of, exposure) in [("all together", hours), ("one of the population", hours * population)] {
        let Some(rate) = RateEstimate::new(failures, exposure, LEVEL) else {
            continue;
        };
        table.row([
            of.into(),
            failures.into(),
            exposure.into(),
            rate.rate.into(),
            rate.low.into(),
            rate.high.into(),
            rate.mean_between().into(),
        ]);
    }
    outcome.tables.push(table);
    outcome
        .problems
        .extend(options.population_problem(data, Canonical::Failures)?);
    if let Some(given) = options.population {
        outcome.population = Some(format!("{given} (given)"));
    }
    Ok(outcome)
}
