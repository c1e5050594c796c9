//! The controller's clock: the wall clock at its start, carried on by the monotonic clock.
//!
//! The clock never runs backwards, not even across a restart on a machine with a wall clock that was set back, so
//! events are stamped in the order of their arrival and no timer waits for a clock that stands still. The cost: a wall
//! clock that is set while the controller runs takes effect only after a restart. Agents measure their offset against
//! this clock, so all evidence is on it too.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rankguard_model::Timestamp;

/// Monotonic wall clock; copies agree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MonotonicClock {
    base: Timestamp,
    started: Instant,
}

impl MonotonicClock {
    /// Creates a clock that shows at least `not_before`.
    pub(crate) fn start(not_before: Timestamp) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            base: Timestamp(0).after(since_epoch).max(not_before),
            started: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.base.after(self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_set_back_between_two_lives_neither_goes_back_nor_stands_still() {
        let last = Timestamp::from_millis(4_000_000_000_000);
        let clock = MonotonicClock::start(last);
        let first = clock.now();
        assert!(first >= last);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(2) {}
        assert!(clock.now().since(first) >= Duration::from_millis(2));
    }
}
