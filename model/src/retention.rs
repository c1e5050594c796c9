//! Retention rules for committed checkpoints.

use serde::{Deserialize, Serialize};

use crate::{Generation, Step};

/// Preferred direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricGoal {
    /// Lower is better, as for a loss.
    Low,
    /// Higher is better, as for an accuracy.
    High,
}

/// Rule to retain the best checkpoints by a metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricRule {
    /// Metric name (`loss`).
    pub metric: String,
    /// Preferred direction of the metric.
    pub good: MetricGoal,
    /// Checkpoints to retain.
    pub count: u32,
}

/// Retention rules; a checkpoint is retained if any rule applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionPolicy {
    /// Newest checkpoints to retain; the newest one is retained even if this is 0.
    pub last: u32,
    /// Retains checkpoints at multiples of this step.
    pub every_steps: Option<u64>,
    /// Retains the first checkpoint of each period of this length, milliseconds, counted from the Unix epoch.
    pub every_ms: Option<u64>,
    /// Retains the best checkpoints by a metric.
    pub best: Option<MetricRule>,
}

/// Result of the retention rules for a job's committed checkpoints. A store that holds only some of them retains the
/// newest of its own, so that it never has fewer than the rules require.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetainedSet {
    /// Newest checkpoints to retain.
    pub newest: u32,
    /// Checkpoints that any rule retains.
    pub named: Vec<(Generation, Step)>,
}
