//! Time as a value: wall-clock timestamps and clock offsets. This module reads no clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Wall-clock time: nanoseconds since the Unix epoch, UTC. Negative before 1970.
///
/// Serialized as a newtype, in JSON a plain integer. It is not `transparent`: the name of the type reaches the
/// serializer, so that command output can show times as RFC 3339 (`rankguard_console::times`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Converts milliseconds since the Unix epoch; saturates.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns milliseconds since the Unix epoch, rounded down.
    pub fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Returns this time plus `duration`; saturates.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// Returns this time minus `duration`; saturates.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the signed milliseconds from `earlier` to this time, rounded down.
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).div_euclid(1_000_000)
    }
}

/// Milliseconds in a day.
const DAY: i64 = 86_400_000;

impl fmt::Display for Timestamp {
    /// Formats as RFC 3339 in UTC with milliseconds: `2026-11-21T03:44:28.123Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.written()).map_err(|_| fmt::Error)?)
    }
}

impl Timestamp {
    /// Appends the displayed form to a text without a formatter; the texts of cases contain many timestamps.
    pub fn push_to(self, text: &mut String) {
        text.push_str(str::from_utf8(&self.written()).unwrap_or_default());
    }

    /// Formats by hand for speed. An `i64` of nanoseconds reaches years of four digits only.
    fn written(self) -> [u8; 24] {
        let millis = self.as_millis();
        let (year, month, day) = civil(millis.div_euclid(DAY));
        let of_day = millis.rem_euclid(DAY);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_digits(&mut text[..4], year);
        write_digits(&mut text[5..7], month);
        write_digits(&mut text[8..10], day);
        write_digits(&mut text[11..13], of_day / 3_600_000);
        write_digits(&mut text[14..16], of_day / 60_000 % 60);
        write_digits(&mut text[17..19], of_day / 1_000 % 60);
        write_digits(&mut text[20..23], of_day % 1_000);
        text
    }
}

/// Converts days since the Unix epoch to year, month and day of the Gregorian calendar. Years are counted from March,
/// so that the leap day is the last day of a year.
fn civil(day: i64) -> (i64, i64, i64) {
    let since_year_0 = day + 719_468;
    let era = since_year_0.div_euclid(146_097);
    let of_era = since_year_0.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// Writes a non-negative number with leading zeros; digits beyond the length of `text` are cut off.
fn write_digits(text: &mut [u8], number: i64) {
    let mut number = number as u32;
    for place in text.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Offset of a node's wall clock from the controller's, measured by round trips.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Node's clock minus controller's clock, nanoseconds.
    pub offset_ns: i64,
    /// Precision of the offset: half the best round trip, nanoseconds.
    pub error_ns: u64,
}

impl ClockOffset {
    /// Converts a time on the node's clock to the controller's clock.
    pub fn to_controller(self, node_time: Timestamp) -> Timestamp {
        Timestamp(node_time.0.saturating_sub(self.offset_ns))
    }

    /// Converts a time on the controller's clock to the node's clock.
    pub fn to_node(self, controller_time: Timestamp) -> Timestamp {
        Timestamp(controller_time.0.saturating_add(self.offset_ns))
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
    fn any_moment_prints_as_a_library_of_calendars_prints_it() {
        let library = |at: i64| {
            format!(
                "{:.3}",
                jiff::Timestamp::from_nanosecond(at.into()).expect("in its years")
            )
        };
        // The step width reaches all days of the year and all hours, over all years that an `i64` of nanoseconds can
        // represent.
        let steps = (i64::MIN..i64::MAX).step_by(86_399 * 1_000_000_007 * 41);
        let edges = [
            i64::MIN,
            -1,
            0,
            1,
            999_999,
            951_782_399_999_999_999,
            951_868_800_000_000_000,
            i64::MAX,
        ];
        for at in steps.chain(edges) {
            let mut pushed = String::new();
            Timestamp(at).push_to(&mut pushed);
            assert_eq!(
                (Timestamp(at).to_string(), &pushed),
                (library(at), &library(at)),
                "{at}"
            );
        }
    }

    #[test]
    fn json_contains_the_integer() {
        assert_eq!(serde_json::to_string(&Timestamp(-5)).expect("a number"), "-5");
        assert_eq!(
            serde_json::from_str::<Timestamp>("1732160668123000001").expect("a time"),
            Timestamp(1_732_160_668_123_000_001)
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
