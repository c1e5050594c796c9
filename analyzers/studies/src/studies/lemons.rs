//! Few nodes with many failures.

use rankguard_datasets::{Dataset, Table as Canonical};
use rankguard_statistics::rate::posterior;

use crate::error::StudyError;
use crate::outcome::{Outcome, Table};
use crate::plot::{Plot, Shape};
use crate::studies::mix::counts_of;
use crate::studies::{Options, Study, length};

pub(super) const STUDY: Study = Study {
    name: "lemons",
    about: "nodes with the most failures, their share, and the rate believed of each",
    needs: "failures: node, time; a population",
    run,
};

/// The prior of a node's rate weighs as much as this many failures.
const WEIGHT: f64 = 2.0;

fn run(data: &Dataset, options: &Options) -> Result<Outcome, StudyError> {
    let by = options.by("node");
    let labels = data.labels(Canonical::Failures, by)?;
    let (population, hours) = (options.population(data)?, length(data)? / 3_600.0);
    let counts = counts_of(&labels, false);
    let all: u64 = counts.iter().map(|(_, n)| n).sum();
    let average = all as f64 / (population * hours);
    let mut outcome = Outcome::new(
        "lemons",
        data,
        "failures by node, over the whole window; believed rate: Gamma, prior with the average rate of the population and the weight of 2 failures",
    );
    let mut shares = Table::new(
        "share of failures on the worst nodes",
        &["nodes", "of population", "share of failures"],
    );
    for percent in [1.0, 5.0, 10.0] {
        let top = (population * percent / 100.0).ceil() as usize;
        let sum: u64 = counts.iter().take(top).map(|(_, n)| n).sum();
        shares.row([top.into(), (percent / 100.0).into(), (sum as f64 / all as f64).into()]);
    }
    outcome.tables.push(shares);
    let mut table = Table::new(
        "the worst",
        &[
            "node",
            "failures",
            "times the average",
            "believed per h",
            "at least (95 %)",
        ],
    );
    for (node, count) in counts.iter().take(20) {
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
    let bars = counts.into_iter().take(20);
    let bars = bars.map(|(node, n)| (node.to_owned(), n as f64)).collect();
    outcome.plots.push(Plot {
        title: "failures of the worst nodes".to_owned(),
        across: "failures".to_owned(),
        shape: Shape::Bars(bars),
    });
    Ok(outcome)
}
