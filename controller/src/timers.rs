//! Timers that the decision core has requested.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_core::{Event, TimerKey};
use rankguard_model::Timestamp;

/// Lateness of a timer that shows that the event loop stood still: a slow disk, a stopped process.
const STOOD: Duration = Duration::from_millis(200);
/// Wait of late timers for messages that arrived meanwhile: what a timer decides may be answered in them.
const CATCH_UP: Duration = Duration::from_millis(100);

/// Timers by purpose: one each, a later request replaces an earlier one.
#[derive(Debug, Default)]
pub(crate) struct TimerTable {
    set: BTreeMap<TimerKey, Timestamp>,
    /// Time until which late timers wait for messages, and the latest time for which they have waited already.
    held_until: Option<Timestamp>,
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

    /// Returns the time until the first timer, or until late timers have waited; `None` if none is set.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Duration> {
        let first = self.first()?;
        let held = self.held_until.map_or(first, |held| first.max(held));
        Some(held.since(now))
    }

    /// Lets timers that are late wait once for messages that arrived while the event loop stood still. Returns true while
    /// they wait.
    pub(crate) fn hold_late(&mut self, now: Timestamp) -> bool {
        let Some(first) = self.first() else { return false };
        match self.held_until {
            // They have waited, unless the loop stood still again after the hold.
            Some(held) if now.since(held) < STOOD => now < held,
            _ if now.since(first) >= STOOD => {
                self.held_until = Some(now.after(CATCH_UP));
                true
            }
            _ => false,
        }
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
    fn late_timers_wait_once_for_messages() {
        let at = Timestamp::from_millis;
        let mut timers = TimerTable::default();
        timers.set(TimerKey::Settle, at(1_000));
        assert!(!timers.hold_late(at(1_050)), "it is in time");
        assert!(timers.hold_late(at(1_900)), "the loop stood still");
        assert_eq!(timers.wait(at(1_900)), Some(CATCH_UP));
        assert!(timers.hold_late(at(1_950)));
        assert!(!timers.hold_late(at(2_000)));
        assert_eq!(timers.take_due(at(2_000)).len(), 1);
        timers.set(TimerKey::Settle, at(3_000));
        assert!(timers.hold_late(at(4_000)), "it stood still again");
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
