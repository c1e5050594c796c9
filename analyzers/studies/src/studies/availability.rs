//! Share of node time that is up.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::downtime;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::studies::intervals::{IntervalTable, NodeInterval};
use crate::studies::{Study, StudyOptions, length};

pub(super) const STUDY: Study = Study {
    name: "availability",
    about: "share of node time that is up: over all time, and as the mean of nodes",
    needs: "outages: node, start, end, state; or failures: node, time, end and a population",
    run,
};

/// Returns the share of the population's time that failures with an end cover, as a union for each
/// node.
pub(crate) fn down_share(data: &Dataset, window: (f64, f64), population: f64) -> Result<f64, StudyError> {
    let nodes = data.strings(Canonical::Failures, "node")?;
    let times = data.f64s(Canonical::Failures, "time")?;
    let ends = data.f64s(Canonical::Failures, "end")?;
    let rows = nodes.into_iter().zip(times).zip(ends);
    let faults: Vec<_> = rows
        .filter_map(|((node, from), to)| Some((node?, from?, to?)))
        .collect();
    if faults.is_empty() {
        return Err(StudyError::missing(
            "no failure has an end, so no downtime is known",
            "give data with intervals (outages), or failures with an end",
        ));
    }
    let down: f64 = downtime::covered_by_node(&faults, window).values().sum();
    Ok(down / (population * (window.1 - window.0)))
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let intervals = if data.has(Canonical::Outages) {
        Some(IntervalTable::of(data)?)
    } else {
        None
    };
    let mut table = ResultTable::new("availability", &["figure", "value"]);
    let ended = |interval: &NodeInterval| Some((interval.node, interval.up, (interval.end? - interval.start).max(0.0)));
    let rows = intervals.iter().flat_map(|intervals| &intervals.rows).filter_map(ended);
    if rows.clone().any(|(_, up, _)| !up) {
        let mut nodes: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for (node, up, time) in rows {
            let times = nodes.entry(node).or_default();
            *(if up { &mut times.0 } else { &mut times.1 }) += time;
        }
        let (up, down) = nodes
            .values()
            .fold((0.0, 0.0), |sum, node| (sum.0 + node.0, sum.1 + node.1));
        let shares: Vec<f64> = nodes
            .values()
            .map(|(up, down)| up / (up + down))
            .filter(|share| share.is_finite())
            .collect();
        table.row(["nodes with intervals".into(), nodes.len().into()]);
        table.row(["share of node time up".into(), (up / (up + down)).into()]);
        table.row([
            "mean of the nodes' shares".into(),
            (shares.iter().sum::<f64>() / shares.len() as f64).into(),
        ]);
        let mut outcome = StudyResult::new(
            "availability",
            data,
            "time in state up over time in any state, of intervals with both ends; nodes without intervals are not in it",
        );
        outcome.tables.push(table);
        return Ok(outcome);
    }
    // Reported first, because a population does not help without failures.
    data.known(Canonical::Failures, "end")?;
    let population = options.population(data)?;
    length(data)?;
    let window = data.window.unwrap_or((0.0, 0.0));
    let down = down_share(data, window, population)?;
    table.row(["share of node time up".into(), (1.0 - down).into()]);
    table.row(["share of node time down".into(), down.into()]);
    table.row(["nodes down on average".into(), (down * population).into()]);
    let mut outcome = StudyResult::new(
        "availability",
        data,
        "union of failure intervals for each node within the window, over the population; a node with two open failures is down once",
    );
    outcome.tables.push(table);
    Ok(outcome)
}
