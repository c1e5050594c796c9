//! Inputs of the checkpoint interval of a job.

use rankguard_checkpoint_schedule::average::Average;
use rankguard_checkpoint_schedule::governor::Governor;
use rankguard_checkpoint_schedule::rates::Rates;
use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Measured costs, observed failures and the current interval, over all generations of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rhythm {
    /// Failure rates of its nodes, starting with the prior.
    pub rates: Rates,
    /// Time up to which node-hours have been counted.
    pub watched_to: Option<Timestamp>,
    /// Average stall of the trainer for an image, seconds.
    pub image_s: Average,
    /// Number of measured images.
    pub images: u32,
    /// Current interval, with hysteresis against small changes.
    pub governor: Governor,
}

impl Rhythm {
    /// Creates the inputs without measurements; `every` is the interval of the job specification, steps, and `rates` is
    /// the prior.
    pub fn new(every: u64, rates: Rates) -> Self {
        Self {
            rates,
            watched_to: None,
            image_s: Average::default(),
            images: 0,
            governor: Governor::new(every),
        }
    }
}
