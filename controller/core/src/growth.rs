//! Growth of a job onto more nodes, which waits for a checkpoint and is delayed after repeated shrinks.

use std::collections::VecDeque;
use std::time::Duration;

use rankguard_model::{Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Pending growth that waits for a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingGrowth {
    /// Called step; absent in a job that reports no steps.
    pub(crate) step: Option<Step>,
    /// Time until which only a commit of that step or a later one permits the growth.
    pub(crate) until: Timestamp,
}

impl PendingGrowth {
    /// Returns true if a commit of this step permits the growth.
    pub(crate) fn allows(&self, at: Timestamp, step: Step) -> bool {
        at >= self.until || self.step.is_none_or(|called| step >= called)
    }
}

/// Time within which shrinks delay growth.
const SHRINK_WINDOW: Duration = Duration::from_secs(3_600);
/// Longest delay of growth after a shrink, unless [`crate::Policy::grow_ms`] is longer.
const PAUSE_MAX_MS: u64 = 3_600_000;
/// Shrinks retained, the newest; more double the delay beyond its limit.
const SHRINKS_MAX: usize = 16;

/// Times of the newest shrinks of a job.
///
/// Each further shrink within an hour doubles the pause before the job grows again: a node that comes and goes would
/// otherwise restart the job twice each time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ShrinkRecord(VecDeque<Timestamp>);

impl ShrinkRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, at: Timestamp) {
        if self.0.len() >= SHRINKS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(at);
    }

    fn recent(&self, at: Timestamp) -> u32 {
        let recent = |since: &&Timestamp| at.since(**since) < SHRINK_WINDOW;
        self.0.iter().rev().take_while(recent).count() as u32
    }

    /// Returns the time before which the job does not grow; `None` without a recent shrink.
    pub(crate) fn growth_from(&self, at: Timestamp, grow_ms: u64) -> Option<Timestamp> {
        let last = self.0.back()?;
        let pause = pause_ms(self.recent(at).checked_sub(1)?, grow_ms);
        Some(last.after(Duration::from_millis(pause)))
    }

    /// Returns the delay of growth after one more shrink, milliseconds.
    pub(crate) fn next_delay_ms(&self, at: Timestamp, grow_ms: u64) -> u64 {
        pause_ms(self.recent(at), grow_ms)
    }
}

/// Returns the pause after a shrink that followed `earlier` others within the window.
fn pause_ms(earlier: u32, grow_ms: u64) -> u64 {
    let doubled = grow_ms.saturating_mul(1 << earlier.min(20));
    doubled.min(PAUSE_MAX_MS.max(grow_ms))
}
