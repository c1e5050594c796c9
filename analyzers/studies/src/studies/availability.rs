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
    needs: "outages: node, start, end, state, and a population if none is up; or failures: node, time, end or repair_s, and a population",
    run,
};

/// Downtime by failures.
pub(crate) struct DownTime {
    /// Share of the population's time, 0 to 1.
    pub(crate) share: f64,
    /// Number of failures without a node, a time, or a known end.
    pub(crate) left_out: usize,
    pub(crate) failures: usize,
}

/// Returns the share of the population's time that failures cover, as a union for each node. A failure ends at its end,
/// or after its repair time.
pub(crate) fn down_share(data: &Dataset, window: (f64, f64), population: f64) -> Result<DownTime, StudyError> {
    let nodes = data.strings(Canonical::Failures, "node")?;
    let times = data.f64s(Canonical::Failures, "time")?;
    let failures = nodes.len();
    let unknown = vec![None; failures];
    let ends = data
        .f64s(Canonical::Failures, "end")
        .unwrap_or_else(|_| unknown.clone());
    let repairs = data.f64s(Canonical::Failures, "repair_s").unwrap_or(unknown);
    let rows = nodes.into_iter().zip(times).zip(ends.into_iter().zip(repairs));
    let faults: Vec<_> = rows
        .filter_map(|((node, from), (end, repair))| Some((node?, from?, end.or(Some(from? + repair?))?)))
        .collect();
    if faults.is_empty() {
        return Err(StudyError::missing(
            "no failure has a node and an end or a repair time, so no downtime is known",
            "give data with intervals (outages), or failures with an end or a repair time (repair_s)",
        ));
    }
    let down: f64 = downtime::covered_by_node(&faults, window).values().sum();
    Ok(DownTime {
        share: down / (population * (window.1 - window.0)),
        left_out: failures - faults.len(),
        failures,
    })
}

/// Returns the result for outages of which none is up: the time that they do not cover is up.
fn of_down_intervals(
    data: &Dataset,
    options: &StudyOptions,
    intervals: &[NodeInterval],
) -> Result<StudyResult, StudyError> {
    let population = options.population(data)?;
    let length = length(data)?;
    let window = data.window.unwrap_or((0.0, 0.0));
    let rows: Vec<(u32, f64, f64)> = intervals
        .iter()
        .map(|interval| (interval.node, interval.start, interval.end.unwrap_or(window.1)))
        .collect();
    let nodes = downtime::covered_by_node(&rows, window);
    let down = nodes.values().sum::<f64>() / (population * length);
    let mut table = ResultTable::new("availability", &["figure", "value"]);
    table.row(["nodes with intervals".into(), nodes.len().into()]);
    shares(&mut table, down, population);
    let mut outcome = StudyResult::new(
        "availability",
        data,
        "union of down intervals for each node within the window, over the population: no interval is up, so a node is up when no interval covers it; an interval without an end lasts to the end of the window",
    );
    outcome
        .problems
        .extend(options.population_problem(data, Canonical::Outages)?);
    outcome.tables.push(table);
    Ok(outcome)
}

fn shares(table: &mut ResultTable, down: f64, population: f64) {
    table.row(["share of node time up".into(), (1.0 - down).into()]);
    table.row(["share of node time down".into(), down.into()]);
    table.row(["nodes down on average".into(), (down * population).into()]);
}

/// Returns the result for intervals that give the state of nodes, or `None` if none of them lasted. The time outside of
/// all intervals counts for no state.
fn of_state_intervals(data: &Dataset, intervals: &IntervalTable) -> Option<StudyResult> {
    let mut nodes: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for observed in intervals.observed(data.window.map(|window| window.1)) {
        let times = nodes.entry(observed.node).or_default();
        *(if observed.up { &mut times.0 } else { &mut times.1 }) += observed.seconds;
    }
    let (up, down) = nodes
        .values()
        .fold((0.0, 0.0), |sum, node| (sum.0 + node.0, sum.1 + node.1));
    let share = Some(up / (up + down)).filter(|share| share.is_finite())?;
    let shares: Vec<f64> = nodes
        .values()
        .map(|(up, down)| up / (up + down))
        .filter(|share| share.is_finite())
        .collect();
    let mut table = ResultTable::new("availability", &["figure", "value"]);
    table.row(["nodes with intervals".into(), nodes.len().into()]);
    table.row(["share of node time up".into(), share.into()]);
    table.row([
        "mean of the nodes' shares".into(),
        (shares.iter().sum::<f64>() / shares.len() as f64).into(),
    ]);
    let went_on = intervals.rows.iter().filter(|interval| interval.went_on).count();
    let mut outcome = StudyResult::new(
        "availability",
        data,
        format!(
            "time in state up over time in any state; {went_on} of {} intervals are right-censored (they went on when the data was taken) and count as far as they were observed: one without an end lasts to the next interval of its node, or to the end of the window; nodes and times without intervals are not in it",
            intervals.rows.len()
        ),
    );
    if down == 0.0 {
        outcome
            .problems
            .push("no interval is of a state other than up: a node that was down between two intervals is not counted as down".to_owned());
    }
    outcome.tables.push(table);
    Some(outcome)
}

/// Returns the result for failures of known duration: the rest of the population's time is up.
fn of_failures(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let mut table = ResultTable::new("availability", &["figure", "value"]);
    // Reported first, because a population does not help without failures.
    data.known(Canonical::Failures, "end")
        .or_else(|_| data.known(Canonical::Failures, "repair_s"))?;
    let population = options.population(data)?;
    length(data)?;
    let window = data.window.unwrap_or((0.0, 0.0));
    let down = down_share(data, window, population)?;
    shares(&mut table, down.share, population);
    let mut outcome = StudyResult::new(
        "availability",
        data,
        "union of failure intervals for each node within the window, over the population; a failure lasts to its end, or for its repair time; a node with two open failures is down once",
    );
    if down.left_out > 0 {
        outcome.problems.push(format!(
            "downtime of {} of {} failures is not counted: they lack a node, or both an end and a repair time",
            down.left_out, down.failures
        ));
    }
    outcome
        .problems
        .extend(options.population_problem(data, Canonical::Failures)?);
    outcome.tables.push(table);
    Ok(outcome)
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    if data.has(Canonical::Outages) {
        let intervals = IntervalTable::of(data)?;
        let is_up = |interval: &NodeInterval| interval.up;
        if !intervals.rows.is_empty() && !intervals.rows.iter().any(is_up) {
            return of_down_intervals(data, options, &intervals.rows);
        }
        if let Some(outcome) = of_state_intervals(data, &intervals) {
            return Ok(outcome);
        }
    }
    of_failures(data, options)
}
