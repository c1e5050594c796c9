//! Which checkpoints stay, as typed: the same words for `rankguard run` and `rankguard checkpoint gc`.

use clap::{Args, ValueEnum};
use rankguard_model::{Best, Good, Retention};

/// Which checkpoints stay: whatever any of these rules names.
#[derive(Debug, Clone, Args)]
pub(crate) struct KeepArgs {
    /// Committed checkpoints to keep
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: u32,
    /// Also keep those whose step is a multiple of this
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
    /// Also keep the first of each stretch of so many minutes
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keep_minutes: Option<u64>,
    /// Also keep so many of the best
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep_best: Option<u32>,
    /// What is measured of the best
    #[arg(long, value_name = "METRIC", default_value = "loss")]
    pub(crate) best_by: String,
    /// Which values of it are good
    #[arg(long, value_enum, default_value_t = BestIs::Low)]
    pub(crate) best_is: BestIs,
}

/// Which values of a metric are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BestIs {
    /// The lowest
    Low,
    /// The highest
    High,
}

impl KeepArgs {
    /// The rules as the controller has them.
    pub(crate) fn rules(&self) -> Retention {
        let best = self.keep_best.map(|count| Best {
            metric: self.best_by.clone(),
            good: match self.best_is {
                BestIs::Low => Good::Low,
                BestIs::High => Good::High,
            },
            count,
        });
        Retention {
            last: self.keep,
            every_steps: self.keep_every,
            every_ms: self.keep_minutes.map(|minutes| minutes * 60_000),
            best,
        }
    }
}
