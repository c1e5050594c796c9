//! Repeats: what says the same of the same thing again and again. The first ones are kept, the rest are counted.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::glimpse::Glimpse;

/// Signs that say the same which one draft, or the memory, keeps. Enough for a person to see that it goes on, and few
/// enough that a storm leaves room for what is new.
pub(crate) const KEPT: usize = 16;

/// How often a draft was told the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repeats {
    kept: BTreeMap<u64, usize>,
    /// Signs that were only counted.
    pub(crate) counted: u64,
    /// When the newest of them happened.
    pub(crate) last_at: Timestamp,
}

impl Repeats {
    /// Whether a sign is to be kept; one that is not is counted.
    pub(crate) fn keeps(&mut self, glimpse: &Glimpse<'_>) -> bool {
        let Some(same) = glimpse.same else { return true };
        let kept = self.kept.entry(same).or_default();
        if *kept < KEPT {
            *kept += 1;
            return true;
        }
        self.counted += 1;
        self.last_at = self.last_at.max(glimpse.at);
        false
    }
}
