//! Inputs of the checkpoint interval of a job.

use rankguard_checkpoint_schedule::average::WeightedMean;
use rankguard_checkpoint_schedule::governor::IntervalGovernor;
use rankguard_checkpoint_schedule::rates::FailureRates;
use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Measured costs, observed failures and the current interval, over all generations of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct IntervalInputs {
    /// Failure rates of its nodes, starting with the prior.
    pub rates: FailureRates,
    /// Time up to which node-hours have been counted.
    pub watched_to: Option<Timestamp>,
    /// Average stall of the trainer for an image, seconds.
    pub image_s: WeightedMean,
    /// Number of measured images.
    pub images: u32,
    /// Current interval, with hysteresis against small changes.
    pub governor: IntervalGovernor,
}

impl IntervalInputs {
    /// Creates the inputs without measurements; `every` is the interval of the job specification, steps, and `rates` is
    /// the prior.
    pub(crate) fn new(every: u64, rates: FailureRates) -> Self {
        Self {
            rates,
            watched_to: None,
            image_s: WeightedMean::default(),
            images: 0,
            governor: IntervalGovernor::new(every),
        }
    }
}
