//! Studies of jobs: final states with their cost, and failures by job size.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::proportion::ProportionEstimate;
use rankguard_statistics::rate::RateEstimate;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::studies::{LEVEL, Study, StudyOptions};

pub(super) const STUDY: Study = Study {
    name: "jobs",
    about: "how jobs end, by jobs and by GPU time; GPU-hours that did not end in completion",
    needs: "jobs: state; elapsed_s or start and end, gpus",
    run,
};

pub(super) const SIZES: Study = Study {
    name: "by-size",
    about: "failures by job size in nodes, and the time to failure that this projects for larger jobs",
    needs: "jobs: state, nodes; elapsed_s or start and end",
    run: sizes,
};

/// Row of the table of jobs.
struct JobRow {
    /// Value of the column by which jobs are grouped; `(none)` without one.
    state: String,
    /// Elapsed time, at least 0; `None` if it is unknown.
    seconds: Option<f64>,
    gpus: Option<f64>,
    nodes: Option<f64>,
}

impl JobRow {
    /// Returns the GPU-hours; 0 for a job that took no time, even if its number of GPUs is unknown.
    fn gpu_hours(&self) -> Option<f64> {
        let seconds = self.seconds?;
        let gpus = self.gpus.or((seconds == 0.0).then_some(0.0))?;
        Some(seconds * gpus / 3_600.0)
    }
}

/// Adds the known values; `None` if both are unknown.
fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).map(|(one, other)| one + other).or(one).or(other)
}

/// Reads all jobs. `by` is the column that gives the state.
fn jobs(data: &Dataset, by: &str) -> Result<Vec<JobRow>, StudyError> {
    let states = data.strings(Canonical::Jobs, by)?;
    let number = |column| data.f64s(Canonical::Jobs, column);
    let elapsed = number("elapsed_s")?;
    let starts = number("start")?;
    let ends = number("end")?;
    let gpus = number("gpus")?;
    let nodes = number("nodes")?;
    Ok(states
        .into_iter()
        .enumerate()
        .map(|(at, state)| JobRow {
            state: state.unwrap_or_else(|| "(none)".to_owned()),
            seconds: elapsed[at]
                .or_else(|| Some(ends[at]? - starts[at]?))
                .filter(|s| *s >= 0.0),
            gpus: gpus[at],
            nodes: nodes[at],
        })
        .collect())
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let by = options.by("state");
    let jobs = jobs(data, by)?;
    let mut states: BTreeMap<&str, (u64, Option<f64>)> = BTreeMap::new();
    for job in &jobs {
        let state = states.entry(&job.state).or_default();
        state.0 += 1;
        state.1 = sum(state.1, job.gpu_hours());
    }
    let gpu_hours = states.values().map(|state| state.1).fold(None, sum);
    let mut outcome = StudyResult::new(
        "jobs",
        data,
        "each row of jobs counts once; GPU time is elapsed time times GPUs; goodput here is the share of GPU time in jobs that completed, since work saved by checkpoints is not recorded",
    );
    let mut table = ResultTable::new(
        format!("jobs by {by}"),
        &["state", "jobs", "share", "low", "high", "GPU h", "share of GPU time"],
    );
    for (state, (count, hours)) in &states {
        let share = ProportionEstimate::new(*count, jobs.len() as u64, LEVEL);
        table.row([
            (*state).into(),
            (*count).into(),
            share.map(|p| p.share).into(),
            share.map(|p| p.low).into(),
            share.map(|p| p.high).into(),
            (*hours).into(),
            hours.zip(gpu_hours).map(|(hours, all)| hours / all).into(),
        ]);
    }
    outcome.tables.push(table);
    if by == "state"
        && let Some(gpu_hours) = gpu_hours.filter(|hours| *hours > 0.0)
    {
        let completed = states.get("completed").and_then(|state| state.1).unwrap_or(0.0);
        let mut table = ResultTable::new("goodput", &["figure", "value"]);
        table.row(["GPU h".into(), gpu_hours.into()]);
        table.row(["GPU h not completed".into(), (gpu_hours - completed).into()]);
        table.row(["goodput".into(), (completed / gpu_hours).into()]);
        outcome.tables.push(table);
    }
    let unknown = jobs.iter().filter(|job| job.seconds.is_none()).count();
    if unknown > 0 {
        outcome
            .problems
            .push(format!("{unknown} jobs have no elapsed time and add no GPU time"));
    }
    let uncounted = |job: &&JobRow| job.seconds.is_some() && job.gpu_hours().is_none();
    match jobs.iter().filter(uncounted).count() {
        0 => {}
        _ if jobs.iter().all(|job| job.gpus.is_none()) => outcome
            .problems
            .push("no job has a number of GPUs: their time and goodput are not known; give jobs with gpus".to_owned()),
        some => outcome
            .problems
            .push(format!("{some} jobs have no number of GPUs and add no GPU time")),
    }
    Ok(outcome)
}

fn sizes(data: &Dataset, _: &StudyOptions) -> Result<StudyResult, StudyError> {
    let jobs = jobs(data, "state")?;
    // Jobs, failures and node-hours, by number of nodes rounded up to a power of two.
    let mut sizes: BTreeMap<u64, (u64, u64, f64)> = BTreeMap::new();
    for job in &jobs {
        let (Some(nodes), Some(seconds)) = (job.nodes.filter(|n| *n >= 1.0), job.seconds) else {
            continue;
        };
        let size = sizes.entry((nodes as u64).next_power_of_two()).or_default();
        size.0 += 1;
        size.1 += u64::from(matches!(job.state.as_str(), "failed" | "node_fail" | "out_of_memory"));
        size.2 += nodes * seconds / 3_600.0;
    }
    let (failures, exposure) = sizes
        .values()
        .fold((0, 0.0), |sum, size| (sum.0 + size.1, sum.1 + size.2));
    let Some(rate) = RateEstimate::new(failures, exposure, LEVEL) else {
        return Err(StudyError::missing(
            "no job has both a size in nodes and a time: no failures by size",
            "give jobs with nodes and elapsed_s, or start and end",
        ));
    };
    let mut outcome = StudyResult::new(
        "by-size",
        data,
        "failures: states failed, node_fail and out_of_memory, whoever is to blame; exposure: node-hours of all jobs; projection: a constant rate a node-hour, so mean time to failure falls as one over nodes",
    );
    let mut table = ResultTable::new(
        "by size",
        &[
            "nodes up to",
            "jobs",
            "failures",
            "share",
            "node h",
            "failures per node h",
        ],
    );
    for (nodes, (count, failed, hours)) in &sizes {
        table.row([
            (*nodes).into(),
            (*count).into(),
            (*failed).into(),
            (*failed as f64 / *count as f64).into(),
            (*hours).into(),
            (*failed as f64 / hours).into(),
        ]);
    }
    outcome.tables.push(table);
    let mut table = ResultTable::new("projected mean time to failure", &["nodes", "h", "low", "high"]);
    for nodes in [8_u64, 64, 512, 2_048, 16_384] {
        let per = |rate: f64| 1.0 / (rate * nodes as f64);
        table.row([
            nodes.into(),
            per(rate.rate).into(),
            per(rate.high).into(),
            per(rate.low).into(),
        ]);
    }
    outcome.tables.push(table);
    Ok(outcome)
}
