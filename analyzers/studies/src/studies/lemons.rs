//! Nodes with the most failures.

use std::sync::Arc;

use rankguard_datasets::{Dataset, LabelColumn, TableKind as Canonical};
use rankguard_statistics::rate::posterior;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::plot::{PlotContent, StudyPlot};
use crate::studies::mix::most_first;
use crate::studies::{Study, StudyOptions, length};

pub(super) const STUDY: Study = Study {
    name: "lemons",
    about: "nodes with the most failures, their share, and the rate believed of each",
    needs: "failures: node, time; a population",
    run,
};

/// Maximum number of listed nodes.
const WORST: usize = 20;
/// Weight of the prior of a node's rate, in failures.
const WEIGHT: f64 = 2.0;

/// Returns the `wanted` greatest counts, greatest first.
fn greatest(mut counts: Vec<u64>, wanted: usize) -> Vec<u64> {
    if wanted < counts.len() {
        counts.select_nth_unstable_by(wanted, |a, b| b.cmp(a));
        counts.truncate(wanted);
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// Returns the labels of a column with the most failures, most first; `counts` are its counts in
/// that order.
fn worst<'a>(labels: &'a LabelColumn, counts: &[u64]) -> Vec<(&'a str, u64)> {
    let least = counts.get(WORST - 1).copied().unwrap_or(0);
    let names = labels.names.iter().map(String::as_str);
    let counted = names.zip(labels.counts().iter().copied());
    let mut worst: Vec<(&str, u64)> = counted.filter(|(_, count)| *count >= least).collect();
    worst.sort_unstable_by(most_first);
    worst.truncate(WORST);
    worst
}

/// Layers of failures that show nothing about the node on which they happened.
const OF_PROGRAMS: [&str; 3] = ["user-code", "user-data", "model-numerics"];

fn is_of_program(layer: Option<&str>) -> bool {
    layer.is_some_and(|layer| OF_PROGRAMS.contains(&layer))
}

/// Returns the labels of the failures, without those of programs if the data distinguishes them, and the number of these.
fn failures_of_machines(data: &Dataset, by: &str) -> Result<(Arc<LabelColumn>, u64), StudyError> {
    let labels = data.labels(Canonical::Failures, by)?;
    let Ok(layers) = data.strings(Canonical::Failures, "x_layer") else {
        return Ok((labels, 0));
    };
    let rows = || labels.texts().zip(&layers);
    let of_programs = rows()
        .filter(|(text, layer)| text.is_some() && is_of_program(layer.as_deref()))
        .count() as u64;
    if of_programs == 0 {
        return Ok((labels, 0));
    }
    let of_machines = rows()
        .map(|(text, layer)| text.filter(|_| !is_of_program(layer.as_deref())))
        .collect();
    Ok((Arc::new(of_machines), of_programs))
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let by = options.by("node");
    let (labels, of_programs) = failures_of_machines(data, by)?;
    let population = options.population(data)?;
    let hours = length(data)? / 3_600.0;
    let all: u64 = labels.counts().iter().sum();
    let average = all as f64 / (population * hours);
    let mut outcome = StudyResult::new(
        "lemons",
        data,
        "failures by node, over the whole window; believed rate: Gamma, prior with the average rate of the population and the weight of 2 failures",
    );
    let mut shares = ResultTable::new(
        "share of failures on the worst nodes",
        &["nodes", "of population", "share of failures"],
    );
    let percents = [1.0, 5.0, 10.0];
    let top = |percent: f64| (population * percent / 100.0).ceil() as usize;
    let counts = greatest(
        labels.counts().to_vec(),
        percents.into_iter().map(top).fold(WORST, usize::max),
    );
    let mut tops: Vec<usize> = percents.into_iter().map(top).collect();
    tops.dedup();
    for top in tops {
        let sum: u64 = counts.iter().take(top).sum();
        let share = top as f64 / population;
        shares.row([top.into(), share.into(), (sum as f64 / all as f64).into()]);
    }
    outcome.tables.push(shares);
    outcome
        .problems
        .extend(options.population_problem(data, Canonical::Failures)?);
    if of_programs > 0 {
        outcome.problems.push(format!(
            "{of_programs} failures of programs and their data (layers {}) are left out: they show nothing about the node",
            OF_PROGRAMS.join(", ")
        ));
    }
    let mut table = ResultTable::new(
        "the worst",
        &[
            "node",
            "failures",
            "times the average",
            "believed per h",
            "at least (95 %)",
        ],
    );
    let worst = worst(&labels, &counts);
    for (node, count) in &worst {
        let belief = posterior(*count, hours, average, WEIGHT);
        table.row([
            (*node).into(),
            (*count).into(),
            (*count as f64 / hours / average).into(),
            belief.map(|rate| rate.mean()).into(),
            belief.map(|rate| rate.quantile(0.05)).into(),
        ]);
    }
    outcome.tables.push(table);
    let bars = worst.into_iter().map(|(node, n)| (node.to_owned(), n as f64)).collect();
    outcome.plots.push(StudyPlot {
        title: "failures of the worst nodes".to_owned(),
        across: "failures".to_owned(),
        shape: PlotContent::Bars(bars),
    });
    Ok(outcome)
}
