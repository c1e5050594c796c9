//! Time as a value. Wall clocks say when; durations say how long. Nothing here reads a clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment: nanoseconds since the Unix epoch, UTC. Negative before 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch, saturating.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Milliseconds since the Unix epoch, rounded down.
    pub fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This moment plus `duration`, saturating.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// This moment minus `duration`, saturating.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Signed milliseconds from `earlier` to this moment, rounded down.
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).div_euclid(1_000_000)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds: `2026-11-21T03:44:28.123Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} ns", self.0),
        }
    }
}

/// How far a node's wall clock is ahead of the controller's, as measured by round trips.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Node's clock minus controller's clock, nanoseconds.
    pub offset_ns: i64,
    /// Half the best round trip, nanoseconds: the offset is known to this precision.
    pub error_ns: u64,
}

impl ClockOffset {
    /// A moment of the node's clock on the controller's clock.
    pub fn to_controller(self, node_time: Timestamp) -> Timestamp {
        Timestamp(node_time.0.saturating_sub(self.offset_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_rfc3339_in_utc() {
        assert_eq!(
            Timestamp::from_millis(1_732_160_668_123).to_string(),
            "2024-11-21T03:44:28.123Z"
        );
    }

    #[test]
    fn since_never_goes_negative() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(9).since(Timestamp(5)), Duration::from_nanos(4));
    }

    #[test]
    fn a_clock_that_runs_ahead_is_set_back() {
        let ahead = ClockOffset {
            offset_ns: 250,
            error_ns: 10,
        };
        assert_eq!(ahead.to_controller(Timestamp(1_000)), Timestamp(750));
    }
}
