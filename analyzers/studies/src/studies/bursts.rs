//! Chains of failures close in time.

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::bursts::{FailureBurst, chains};
use rankguard_statistics::sample::SampleSummary;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::studies::{Study, StudyOptions};

pub(super) const STUDY: Study = Study {
    name: "bursts",
    about: "chains of failures, each within a window (900 s) after the one before",
    needs: "failures: time; x_rack where there are racks",
    run,
};

/// Chains of the data set's failures, the number of failures with a time, and the number of chains within
/// one rack.
pub(crate) struct BurstChains {
    pub(crate) chains: Vec<FailureBurst>,
    pub(crate) failures: usize,
    pub(crate) in_one_rack: Option<usize>,
}

impl BurstChains {
    pub(crate) fn of(data: &Dataset, window: f64) -> Result<Self, StudyError> {
        let times = data.numbers(Canonical::Failures, "time")?;
        let chains = chains(&times, window);
        let racks = data.labels(Canonical::Failures, "x_rack").ok();
        let in_one_rack = racks.map(|racks| {
            let one = |burst: &&FailureBurst| {
                let mut racks = chains.members(burst).map(|row| racks.of[row]);
                let first = racks.next().unwrap_or_default();
                first.name().is_some() && racks.all(|rack| rack == first)
            };
            chains.bursts.iter().filter(one).count()
        });
        Ok(Self {
            failures: chains.order.len(),
            chains: chains.bursts,
            in_one_rack,
        })
    }

    pub(crate) fn members(&self) -> usize {
        self.chains.iter().map(|burst| burst.members).sum()
    }

    pub(crate) fn durations(&self) -> Vec<f64> {
        self.chains.iter().map(|burst| burst.duration).collect()
    }

    pub(crate) fn of_two(&self) -> usize {
        self.chains.iter().filter(|burst| burst.members == 2).count()
    }

    pub(crate) fn largest(&self) -> usize {
        self.chains.iter().map(|burst| burst.members).max().unwrap_or(0)
    }
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let window = options.window_s.unwrap_or(900.0);
    let bursts = BurstChains::of(data, window)?;
    let definition =
        format!("chain of at least two failures, each less than {window} s after the one before, anywhere");
    let mut outcome = StudyResult::new("bursts", data, definition);
    let mut table = ResultTable::new("bursts", &["figure", "value"]);
    let durations = SampleSummary::of(&bursts.durations());
    table.row(["failures".into(), bursts.failures.into()]);
    table.row(["bursts".into(), bursts.chains.len().into()]);
    table.row(["failures in bursts".into(), bursts.members().into()]);
    table.row([
        "their share".into(),
        (bursts.members() as f64 / bursts.failures as f64).into(),
    ]);
    table.row(["median duration, s".into(), durations.map(|d| d.median).into()]);
    table.row(["longest, s".into(), durations.map(|d| d.max).into()]);
    table.row(["largest, failures".into(), bursts.largest().into()]);
    table.row([
        "share of exactly two".into(),
        (bursts.of_two() as f64 / bursts.chains.len() as f64).into(),
    ]);
    if let Some(count) = bursts.in_one_rack {
        table.row(["within one rack".into(), count.into()]);
    }
    outcome.tables.push(table);
    Ok(outcome)
}
