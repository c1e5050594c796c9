//! Parsing of the sources' time formats to seconds. A wall clock without an offset counts as UTC.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Returns the seconds since 1970 of a civil time read as UTC.
fn seconds(date: (i16, i8, i8), time: (i8, i8, i8), fraction: f64) -> Option<f64> {
    let civil = DateTime::new(date.0, date.1, date.2, time.0, time.1, time.2, 0).ok()?;
    let stamp = civil.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(stamp.as_second() as f64 + fraction)
}

fn fraction(text: &str) -> Option<f64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("0.{text}").parse().ok()
}

/// Parses `H:MM` or `HH:MM:SS`, with a fraction after `.` or `,`.
fn clock(text: &str, separator: char) -> Option<((i8, i8, i8), f64)> {
    let mut parts = text.splitn(3, separator);
    let hour = parts.next()?.parse().ok()?;
    let minute = parts.next()?.parse().ok()?;
    let Some(rest) = parts.next() else {
        return Some(((hour, minute, 0), 0.0));
    };
    match rest.split_once(['.', ',']) {
        Some((second, digits)) => Some(((hour, minute, second.parse().ok()?), fraction(digits)?)),
        None => Some(((hour, minute, rest.parse().ok()?), 0.0)),
    }
}

fn date(text: &str, separator: char) -> Option<(i16, i8, i8)> {
    let mut parts = text.splitn(3, separator);
    let date = (
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    );
    Some(date)
}

/// Parses seconds east of UTC: `Z`, `UTC`, `-0500`, `+08:00`, `+08`, `PST`, `PDT` and the other American
/// zones.
fn offset(text: &str) -> Option<i32> {
    match text {
        "Z" | "UTC" | "GMT" => return Some(0),
        "EDT" => return Some(-4 * 3600),
        "EST" | "CDT" => return Some(-5 * 3600),
        "CST" | "MDT" => return Some(-6 * 3600),
        "MST" | "PDT" => return Some(-7 * 3600),
        "PST" => return Some(-8 * 3600),
        _ => {}
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = text[1..].chars().filter(|c| *c != ':').collect();
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match digits.len() {
        2 => (digits.parse().ok()?, 0),
        4 => (digits[..2].parse::<i32>().ok()?, digits[2..].parse().ok()?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Parses an ISO 8601 time with `T` or a blank; returns it with its offset, if any.
pub(crate) fn iso(text: &str) -> Option<(f64, Option<i32>)> {
    let text = text.trim();
    let (day, rest) = text.split_once(['T', ' '])?;
    let end = rest
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.' | ',')))
        .unwrap_or(rest.len());
    let (time, fraction) = clock(&rest[..end], ':')?;
    let naive = seconds(date(day, '-')?, time, fraction)?;
    match rest[end..].trim() {
        "" => Some((naive, None)),
        zone => {
            let offset = offset(zone)?;
            Some((naive - f64::from(offset), Some(offset)))
        }
    }
}

/// Parses `2013-01-02 03:04:05` without an offset.
pub(crate) fn wall(text: &str) -> Option<f64> {
    iso(text)
        .filter(|(_, offset)| offset.is_none())
        .map(|(seconds, _)| seconds)
}

/// Parses `M/D/YYYY H:MM`.
pub(crate) fn american(text: &str) -> Option<f64> {
    let (day, rest) = text.trim().split_once(' ')?;
    let mut parts = day.splitn(3, '/');
    let month = parts.next()?.parse().ok()?;
    let day = parts.next()?.parse().ok()?;
    let (time, fraction) = clock(rest.trim(), ':')?;
    seconds((parts.next()?.parse().ok()?, month, day), time, fraction)
}

/// Parses `2005-06-05-01.55.06.697467`, the format of Blue Gene.
pub(crate) fn blue_gene(text: &str) -> Option<f64> {
    let day = text.get(..10)?;
    let rest = text.get(10..)?.strip_prefix('-')?;
    let (time, fraction) = clock(rest, '.')?;
    seconds(date(day, '-')?, time, fraction)
}

fn month(name: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let at = MONTHS.iter().position(|month| *month == name)?;
    i8::try_from(at + 1).ok()
}

/// Parses `Sun Feb 23 16:24:18 2025`, or `Feb 25 2025 13:59:45`.
pub(crate) fn words(text: &str) -> Option<f64> {
    let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
    if month(words.first()?).is_none() {
        words.remove(0);
    }
    let (year, time) = match words.get(2..4)? {
        [time, year] if time.contains(':') => (year, time),
        [year, time] => (year, time),
        _ => return None,
    };
    let (time, fraction) = clock(time, ':')?;
    seconds(
        (year.parse().ok()?, month(words[0])?, words[1].parse().ok()?),
        time,
        fraction,
    )
}

/// Formats a time as a date, if its clock counts from 1970 and not from a zero of its own.
pub fn date_of(seconds: f64) -> Option<String> {
    // From 1973 on: no known trace starts earlier, and none with its own zero lasts as long.
    let counts = (1e8..1e11).contains(&seconds);
    let stamp = jiff::Timestamp::from_second(seconds.floor() as i64)
        .ok()
        .filter(|_| counts)?;
    Some(
        TimeZone::UTC
            .to_datetime(stamp)
            .strftime("%Y-%m-%d %H:%M:%S")
            .to_string(),
    )
}

/// Formats nanoseconds since 1970 as ISO 8601, with a `Z` for an instant.
pub(crate) fn written(nanos: i128, instant: bool) -> Option<String> {
    let stamp = jiff::Timestamp::from_nanosecond(nanos).ok()?;
    Some(if instant {
        stamp.to_string()
    } else {
        TimeZone::UTC.to_datetime(stamp).to_string()
    })
}

/// Parses a zone: a POSIX rule (`EST5EDT,M3.2.0,M11.1.0`), an offset (`+08:00`), or `UTC`.
pub(crate) fn zone(text: &str) -> Option<TimeZone> {
    if let Some(seconds) = offset(text) {
        return jiff::tz::Offset::from_seconds(seconds).ok().map(TimeZone::fixed);
    }
    TimeZone::posix(text).ok()
}

/// Returns the instant of a wall clock time in a zone, and true if the clock showed that time twice or never.
pub(crate) fn in_zone(wall: f64, zone: &TimeZone) -> Option<(f64, bool)> {
    let whole = jiff::Timestamp::from_second(wall.floor() as i64).ok()?;
    let civil = TimeZone::UTC.to_datetime(whole);
    let ambiguous = zone.to_ambiguous_zoned(civil);
    let unsure = ambiguous.is_ambiguous();
    let instant = ambiguous.compatible().ok()?.timestamp();
    Some((instant.as_second() as f64 + wall - wall.floor(), unsure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_form_is_the_same_instant() {
        let wanted = 1_740_327_858.0;
        assert_eq!(wall("2025-02-23 16:24:18"), Some(wanted));
        assert_eq!(iso("2025-02-23T16:24:18Z"), Some((wanted, Some(0))));
        assert_eq!(iso("2025-02-23T11:24:18-0500"), Some((wanted, Some(-18_000))));
        assert_eq!(iso("2025-02-24T00:24:18+08:00"), Some((wanted, Some(28_800))));
        assert_eq!(iso("2025-02-23 08:24:18 PST"), Some((wanted, Some(-28_800))));
        assert_eq!(words("Sun Feb 23 16:24:18 2025"), Some(wanted));
        assert_eq!(words("Feb 23 2025 16:24:18"), Some(wanted));
        assert_eq!(american("2/23/2025 16:24"), Some(wanted - 18.0));
        assert_eq!(blue_gene("2025-02-23-16.24.18.500000"), Some(wanted + 0.5));
        assert_eq!(
            iso("2025-01-21T04:41:44,283302+00:00"),
            Some((1_737_434_504.283_302, Some(0)))
        );
    }

    #[test]
    fn a_date_is_told_of_clocks_that_count_from_1970() {
        assert_eq!(date_of(1_740_327_858.9).as_deref(), Some("2025-02-23 16:24:18"));
        assert_eq!(date_of(348.0 * 86_400.0), None);
        assert_eq!(date_of(1.7e12), None, "milliseconds");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "x",
            "2025-02-30 00:00:00",
            "2025-02-23",
            "2025-02-23 25:00:00",
            "Unknown",
            "NULL",
            "é-é é",
        ] {
            assert_eq!(wall(text), None, "{text}");
            assert_eq!(american(text), None, "{text}");
            assert_eq!(words(text), None, "{text}");
            assert_eq!(blue_gene(text), None, "{text}");
        }
    }

    #[test]
    fn the_repeated_and_the_skipped_hour_are_told() {
        let eastern = zone("EST5EDT,M3.2.0,M11.1.0").expect("a rule");
        let ask = |text| in_zone(wall(text).expect("a time"), &eastern).expect("an instant");
        assert_eq!(
            ask("2019-06-01 00:00:00"),
            (wall("2019-06-01 04:00:00").expect("a time"), false)
        );
        assert!(ask("2019-11-03 01:30:00").1, "shown twice");
        assert!(ask("2019-03-10 02:30:00").1, "never shown");
    }
}
