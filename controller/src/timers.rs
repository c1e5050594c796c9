//! Timers that the decision core has requested.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_core::{Event, TimerKey};
use rankguard_model::Timestamp;

/// Timers by purpose: one each, a later request replaces an earlier one.
#[derive(Debug, Default)]
pub(crate) struct TimerTable {
    set: BTreeMap<TimerKey, Timestamp>,
}

impl TimerTable {
    /// Sets a timer, which replaces an earlier one for the same purpose.
    pub(crate) fn set(&mut self, timer: TimerKey, at: Timestamp) {
        self.set.insert(timer, at);
    }

    /// Returns the due time of the first timer; `None` if none is set.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.set.values().min().copied()
    }

    /// Returns the time until the first timer; `None` if none is set.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Duration> {
        self.first().map(|first| first.since(now))
    }

    /// Removes the timers that are due, and returns their events, earliest first.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<Event> {
        let mut due: Vec<(Timestamp, TimerKey)> = self
            .set
            .extract_if(.., |_, at| *at <= now)
            .map(|(timer, at)| (at, timer))
            .collect();
        due.sort();
        due.into_iter().map(|(_, timer)| Event::TimerFired { timer }).collect()
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::JobId;

    use super::*;

    fn grow(job: &str) -> TimerKey {
        TimerKey::Grow { job: JobId::from(job) }
    }

    #[test]
    fn an_alarm_fires_once_and_the_earliest_first() {
        let mut timers = TimerTable::default();
        timers.set(grow("a"), Timestamp(30));
        timers.set(grow("b"), Timestamp(20));
        timers.set(grow("c"), Timestamp(40));
        assert_eq!(timers.wait(Timestamp(5)), Some(Duration::from_nanos(15)));
        let fired = |timer| Event::TimerFired { timer };
        assert_eq!(timers.take_due(Timestamp(30)), [fired(grow("b")), fired(grow("a"))]);
        assert_eq!(timers.take_due(Timestamp(30)), []);
        assert_eq!(timers.wait(Timestamp(30)), Some(Duration::from_nanos(10)));
    }

    #[test]
    fn a_later_wish_replaces_an_earlier_one() {
        let mut timers = TimerTable::default();
        timers.set(TimerKey::Settle, Timestamp(10));
        timers.set(TimerKey::Settle, Timestamp(50));
        assert_eq!(timers.take_due(Timestamp(49)), []);
        assert_eq!(
            timers.take_due(Timestamp(50)),
            [Event::TimerFired {
                timer: TimerKey::Settle
            }]
        );
        assert_eq!(timers.wait(Timestamp(50)), None);
    }

    #[test]
    fn an_alarm_for_a_moment_that_has_passed_is_due_at_once() {
        let mut timers = TimerTable::default();
        timers.set(TimerKey::Settle, Timestamp(10));
        assert_eq!(timers.wait(Timestamp(99)), Some(Duration::ZERO));
    }
}
