//! Which committed checkpoints of a job stay.

use serde::{Deserialize, Serialize};

use crate::{Generation, Step};

/// Which end of a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Good {
    /// A loss.
    Low,
    /// An accuracy.
    High,
}

/// Keep the best by a metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// Its name (`loss`).
    pub metric: String,
    /// Which end is good.
    pub good: Good,
    /// How many to keep.
    pub count: u32,
}

/// Rules; each adds to what stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// The newest so many; the newest one stays even if this is 0.
    pub last: u32,
    /// Those whose step is a multiple of this.
    pub every_steps: Option<u64>,
    /// The first of each stretch of so many milliseconds, counted from the epoch.
    pub every_ms: Option<u64>,
    /// The best by a metric.
    pub best: Option<Best>,
}

/// What the rules leave of a job's committed checkpoints. Whoever has only some of them keeps the newest of its own, so that
/// it never has fewer than the rules ask for because it missed one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stays {
    /// The newest so many.
    pub newest: u32,
    /// These, by any rule.
    pub named: Vec<(Generation, Step)>,
}
