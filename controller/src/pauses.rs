//! Pauses of the controller itself: its process was stopped, its machine was suspended, or its disk blocked a commit.
//!
//! The event loop wakes up at least once a heartbeat. A much longer time between two turns by the monotonic clock shows that it
//! did not run in between, and what agents report later is no sign of their state.

use std::time::Duration;

use rankguard_model::Timestamp;

use crate::health::HEARTBEAT;

/// Time between two turns of the event loop from which on the controller was held up.
const PAUSE: Duration = HEARTBEAT.saturating_mul(3);

/// Detector of pauses.
#[derive(Debug, Default)]
pub(crate) struct PauseDetector {
    /// Time of the newest turn.
    turned_at: Option<Timestamp>,
}

impl PauseDetector {
    /// Records a turn of the event loop. Returns the time of the turn before if the controller was held up since.
    pub(crate) fn turn(&mut self, now: Timestamp) -> Option<Timestamp> {
        let before = self.turned_at.replace(now)?;
        (now.since(before) >= PAUSE).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_turn_shows_a_pause_and_one_heartbeat_does_not() {
        let mut pauses = PauseDetector::default();
        let at = Timestamp::from_millis;
        let turns = [at(5_000), at(6_000), at(7_900), at(18_000), at(18_100)];
        let paused: Vec<Option<Timestamp>> = turns.into_iter().map(|now| pauses.turn(now)).collect();
        assert_eq!(paused, [None, None, None, Some(at(7_900)), None]);
    }
}
