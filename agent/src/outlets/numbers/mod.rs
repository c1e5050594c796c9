//! Metric families of an agent's view, the same for every outlet.

mod agent;
mod node;

use rankguard_model::{Source, Timestamp};

use super::view::AgentView;

/// Samples of one metric, distinguished by their labels.
#[derive(Debug, PartialEq)]
pub(super) struct Family {
    /// Name in the style of Prometheus, with the unit: `spool_bytes`, `gaps_total`.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Monotonic, from 0 at the agent's start.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// Value with its labels.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// Name and value of each label.
type Labels = Vec<(&'static str, String)>;

fn counter(name: &'static str, help: &'static str, samples: impl IntoIterator<Item = (Labels, f64)>) -> Family {
    family(name, Kind::Counter, help, samples)
}

fn gauge(name: &'static str, help: &'static str, samples: impl IntoIterator<Item = (Labels, f64)>) -> Family {
    family(name, Kind::Gauge, help, samples)
}

fn family(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: impl IntoIterator<Item = (Labels, f64)>,
) -> Family {
    let samples = samples.into_iter().map(|(labels, value)| Sample { labels, value });
    Family {
        name,
        kind,
        help,
        samples: samples.collect(),
    }
}

/// Returns a single sample without labels.
fn one(value: f64) -> [(Labels, f64); 1] {
    [(Labels::new(), value)]
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1e9
}

/// Returns all metric families of an agent.
pub(super) fn families(view: &AgentView) -> Vec<Family> {
    let mut all = agent::families(view);
    all.extend(node::families(view));
    all
}

pub(super) fn source(source: Source) -> &'static str {
    match source {
        Source::KernelLog => "kernel-log",
        Source::JobLog => "job-log",
        Source::Launcher => "launcher",
        Source::Scheduler => "scheduler",
        Source::Ranks => "ranks",
        Source::Host => "host",
        Source::Gpu => "gpu",
        Source::Nic => "nic",
        Source::Checkpoint => "checkpoint",
        Source::FlightRecorder => "flight-recorder",
        Source::Agent => "agent",
    }
}
