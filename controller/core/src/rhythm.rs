//! What decides how often a job checkpoints.

use rankguard_checkpoint_schedule::average::Average;
use rankguard_checkpoint_schedule::governor::Governor;
use rankguard_checkpoint_schedule::rates::Rates;
use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Measured costs, observed failures and the interval in force, over all generations of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rhythm {
    /// How often its nodes fail, beginning with what was believed before it ran.
    pub rates: Rates,
    /// Until when node-hours were counted.
    pub watched_to: Option<Timestamp>,
    /// What an image costs the trainer, seconds.
    pub image_s: Average,
    /// Images that were measured.
    pub images: u32,
    /// The interval in force.
    pub governor: Governor,
}

impl Rhythm {
    /// Nothing was measured; `every` is what the user asked for, steps, and `rates` is believed.
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
