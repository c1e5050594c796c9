//! What an agent costs and how soon it sees: a real agent process on a made-up node.
//!
//! The node has 8 GPUs (the stand-in library), 8 network adapters (a folder in the form of sysfs), 64 rank logs that grow by
//! a line a second, and a file for a kernel log. It is looked at three times: at a sample a second, what the agent costs
//! while nothing is wrong and while faults come, and how soon a line of the kernel log is a finding (`cost`); at the agent's
//! own pace, how soon a changed state and a wedged driver are findings (`changes`); and with a real controller, how soon a
//! line is in a case (`cases`).
//!
//! Findings are taken at a controller's door: that is later than on the node by the way there, so a delay is an upper bound.
//! Costs are those that the kernel counts for the agent's process and for the one that calls the GPU library. Absent: ranks,
//! real devices.

mod cases;
mod changes;
mod cost;
mod door;
mod exporter;
mod process;
mod site;
mod usage;

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

const AGENT: &str = "agent";

/// One measured number.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) subject: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it is to stay below, where there is such a goal.
    pub(crate) below: Option<f64>,
}

impl Figure {
    pub(crate) fn reached(&self) -> Option<bool> {
        self.below.map(|target| self.value < target)
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

impl Found {
    fn put(&mut self, figure: &'static str, value: f64, unit: &'static str, below: Option<f64>) {
        self.figures.push(Figure {
            subject: AGENT,
            figure,
            value,
            unit,
            below,
        });
    }
}

/// Measures for `time` each what is measured over time, with `library` in place of the GPU library.
pub(crate) async fn measure(library: &Path, time: Duration) -> io::Result<Found> {
    let mut found = Found::default();
    cost::measure(library, time, &mut found).await?;
    changes::measure(library, &mut found).await?;
    cases::measure(library, &mut found).await?;
    Ok(found)
}

/// In milliseconds, smallest first.
fn sorted_millis(delays: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut millis: Vec<f64> = delays.map(|delay| delay.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    millis
}

/// The smallest value that at least this share of the values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((quantile(&values, 0.5), quantile(&values, 0.99)), (50.0, 99.0));
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
