//! Mean time between failures: of all nodes together, and of one node if the population is known.

use std::collections::BTreeSet;

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

/// Returns the number of failures with a time of systems that are not in the population, because the inventory does not state
/// their number of nodes.
fn failures_outside(data: &Dataset) -> Result<u64, StudyError> {
    let has_inventory = data.has(Canonical::Nodes) && data.f64s(Canonical::Nodes, "x_nodes").is_ok();
    let (true, Ok(of), Ok(kinds)) = (
        has_inventory,
        data.strings(Canonical::Failures, "system"),
        data.strings(Canonical::Nodes, "kind"),
    ) else {
        return Ok(0);
    };
    let names = data.strings(Canonical::Nodes, "system")?;
    let nodes = data.f64s(Canonical::Nodes, "x_nodes")?;
    let systems = names.iter().zip(&kinds).zip(&nodes);
    let unstated = systems.filter(|((_, kind), nodes)| kind.as_deref() == Some("system") && nodes.is_none());
    let unstated: BTreeSet<&str> = unstated.filter_map(|((name, _), _)| name.as_deref()).collect();
    let times = data.f64s(Canonical::Failures, "time")?;
    let rows = of.iter().zip(&times).filter(|(_, time)| time.is_some());
    let outside = rows.filter(|(system, _)| system.as_deref().is_some_and(|system| unstated.contains(system)));
    Ok(outside.count() as u64)
}

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
    let outside = match options.population {
        Some(_) => 0,
        None => failures_outside(data)?,
    };
    let rows = [
        ("all together", failures, hours),
        ("one of the population", failures - outside, hours * population),
    ];
    for (of, failures, exposure) in rows {
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
    if outside > 0 {
        outcome.problems.push(format!(
            "{outside} failures are of systems whose number of nodes is not stated: they count for all together, and not for one of the population"
        ));
    }
    outcome
        .problems
        .extend(options.population_problem(data, Canonical::Failures)?);
    if let Some(given) = options.population {
        outcome.population = Some(format!("{given} (given)"));
    }
    Ok(outcome)
}
