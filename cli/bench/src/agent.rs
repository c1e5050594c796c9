//! Resource use and detection delay of an agent: a real agent process on a simulated node.
//!
//! The node has 8 GPUs (the stand-in library), 8 network adapters (a folder in the form of sysfs), 64 rank logs that
//! grow by a line a second, and a file for a kernel log. Three measurements: at a sample a second, the agent's use
//! without and with faults, and the delay from a kernel-log line to its finding (`cost`); at the agent's default
//! intervals, the delay of a changed state and a wedged driver (`changes`); with a real controller, the delay from a
//! line to its case (`cases`).
//!
//! Findings are timed on arrival at a controller: that includes the transfer, so a delay is an upper bound. Resource
//! use is what the kernel counts for the agent's process and for the one that calls the GPU library. Absent: ranks,
//! real devices.

mod cases;
mod changes;
mod cost;
mod exporter;
mod process;
mod site;
mod stub_controller;
mod usage;

use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;

use rankguard_model::{Case, StatusView};
use serde::Serialize;

const AGENT: &str = "agent";

/// Measured number of a subject.
#[derive(Debug, Serialize)]
pub struct AgentFigure {
    pub subject: &'static str,
    pub figure: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// Upper limit of `value`, if there is such a goal.
    pub below: Option<f64>,
}

impl AgentFigure {
    pub fn reached(&self) -> Option<bool> {
        self.below.map(|target| self.value < target)
    }
}

/// All figures and notes of a measurement.
#[derive(Debug, Default)]
pub struct AgentFigures {
    pub figures: Vec<AgentFigure>,
    pub notes: Vec<String>,
}

impl AgentFigures {
    fn put(&mut self, figure: &'static str, value: f64, unit: &'static str, below: Option<f64>) {
        self.figures.push(AgentFigure {
            subject: AGENT,
            figure,
            value,
            unit,
            below,
        });
    }
}

/// Connection to the measured controller.
pub trait ControllerReader {
    /// Fetches nodes and jobs; `None` if the call fails.
    fn status(&self) -> impl Future<Output = Option<StatusView>>;

    /// Fetches all cases; `None` if the call fails.
    fn cases(&self) -> impl Future<Output = Option<Vec<Case>>>;
}

/// Runs all measurements; the timed ones last `time` each. `library` replaces the GPU library; `connect` opens a
/// connection to the controller at an address.
pub async fn measure<C: ControllerReader>(
    library: &Path,
    time: Duration,
    connect: impl FnOnce(&str) -> C,
) -> io::Result<AgentFigures> {
    let mut found = AgentFigures::default();
    cost::measure(library, time, &mut found).await?;
    changes::measure(library, &mut found).await?;
    cases::measure(library, connect, &mut found).await?;
    Ok(found)
}

/// Returns the delays in milliseconds, ascending.
fn sorted_millis(delays: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut millis: Vec<f64> = delays.map(|delay| delay.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    millis
}

/// Returns the smallest value that is not below this share of the values.
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
