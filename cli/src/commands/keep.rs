//! Options of the retention rules, shared by `rankguard run` and `rankguard checkpoint gc`.

use clap::{Args, ValueEnum};
use rankguard_model::{MetricGoal, MetricRule, RetentionPolicy};

/// Retention rules: a checkpoint is retained if any rule matches it.
#[derive(Debug, Clone, Args)]
pub(crate) struct KeepArgs {
    /// Number of newest committed checkpoints to retain
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: u32,
    /// Also retain checkpoints with a step that is a multiple of STEPS
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
    /// Also retain the first checkpoint of every period of this length, in minutes
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keep_minutes: Option<u64>,
    /// Also retain the N best checkpoints by --best-by
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep_best: Option<u32>,
    /// Metric that ranks checkpoints for --keep-best
    #[arg(long, value_name = "METRIC", default_value = "loss")]
    pub(crate) best_by: String,
    /// Direction of the metric: low or high values are best
    #[arg(long, value_enum, default_value_t = MetricDirection::Low)]
    pub(crate) best_is: MetricDirection,
}

/// Direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricDirection {
    /// Lowest values are best
    Low,
    /// Highest values are best
    High,
}

impl KeepArgs {
    /// Converts the options to the controller's retention rules.
    pub(crate) fn rules(&self) -> RetentionPolicy {
        let best = self.keep_best.map(|count| MetricRule {
            metric: self.best_by.clone(),
            good: match self.best_is {
                MetricDirection::Low => MetricGoal::Low,
                MetricDirection::High => MetricGoal::High,
            },
            count,
        });
        RetentionPolicy {
            last: self.keep,
            every_steps: self.keep_every,
            every_ms: self.keep_minutes.map(|minutes| minutes * 60_000),
            best,
        }
    }
}
