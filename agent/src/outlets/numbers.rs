//! Metric families of an agent's view, the same for every outlet.

mod agent;
mod node;

use rankguard_model::{EvidenceSource, Timestamp};

use crate::views::AgentView;

/// Samples of one metric, distinguished by their labels.
#[derive(Debug, PartialEq)]
pub(super) struct MetricFamily {
    /// Name in the style of Prometheus, with the unit: `spool_bytes`, `gaps_total`.
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<MetricSample>,
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// Monotonic, from 0 at the agent's start.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// Value with its labels.
#[derive(Debug, PartialEq)]
pub(super) struct MetricSample {
    pub(super) labels: MetricLabels,
    pub(super) value: f64,
}

/// Name and value of each label.
type MetricLabels = Vec<(&'static str, String)>;

fn counter(
    name: &'static str,
    help: &'static str,
    samples: impl IntoIterator<Item = (MetricLabels, f64)>,
) -> MetricFamily {
    family(name, MetricKind::Counter, help, samples)
}

fn gauge(
    name: &'static str,
    help: &'static str,
    samples: impl IntoIterator<Item = (MetricLabels, f64)>,
) -> MetricFamily {
    family(name, MetricKind::Gauge, help, samples)
}

fn family(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    samples: impl IntoIterator<Item = (MetricLabels, f64)>,
) -> MetricFamily {
    let samples = samples
        .into_iter()
        .map(|(labels, value)| MetricSample { labels, value });
    MetricFamily {
        name,
        kind,
        help,
        samples: samples.collect(),
    }
}

/// Returns a single sample without labels.
fn one(value: f64) -> [(MetricLabels, f64); 1] {
    [(MetricLabels::new(), value)]
}

fn label(name: &'static str, value: impl ToString) -> MetricLabels {
    vec![(name, value.to_string())]
}

fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1e9
}

/// Returns all metric families of an agent.
pub(super) fn families(view: &AgentView) -> Vec<MetricFamily> {
    let mut all = agent::families(view);
    all.extend(node::families(view));
    all
}

pub(super) fn source(source: EvidenceSource) -> &'static str {
    match source {
        EvidenceSource::KernelLog => "kernel-log",
        EvidenceSource::JobLog => "job-log",
        EvidenceSource::Launcher => "launcher",
        EvidenceSource::Scheduler => "scheduler",
        EvidenceSource::Ranks => "ranks",
        EvidenceSource::Host => "host",
        EvidenceSource::Gpu => "gpu",
        EvidenceSource::Nic => "nic",
        EvidenceSource::Checkpoint => "checkpoint",
        EvidenceSource::FlightRecorder => "flight-recorder",
        EvidenceSource::Agent => "agent",
    }
}
