//! Clocks at the start of log lines.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use rankguard_model::Timestamp;

use super::cursor::LineCursor;

/// Context that converts a line's clock to a timestamp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineClock {
    /// Boot time of the node, for lines that count from boot.
    pub boot: Option<Timestamp>,
    /// Year, for syslog lines, which have none.
    pub year: Option<i16>,
    /// Hint that determines the year if `year` is not set.
    pub hint: Option<YearHint>,
    /// Seconds east of Greenwich for clocks without a zone; 0 reads them as UTC.
    pub utc_offset_s: i32,
}

/// Hint for the year of a clock without one; applied to each line, because a log that spans New Year has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YearHint {
    /// Timestamp of the same incident; the nearest year is chosen.
    Near(Timestamp),
    /// Time of the last write to the log; the newest year at most one day beyond it is chosen, because zones differ.
    WrittenBy(Timestamp),
}

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;

impl LineClock {
    /// Returns the timestamp of a clock without a year; none if neither `year` nor `hint` is set.
    fn in_year(&self, month: u64, day: u64, time: &TimeOfDay) -> Option<Timestamp> {
        let of = |year: i16| moment(u64::try_from(year).ok()?, month, day, time, self.utc_offset_s);
        if let Some(year) = self.year {
            return of(year);
        }
        let (reference, is_limit) = match self.hint? {
            YearHint::Near(at) => (at, false),
            YearHint::WrittenBy(at) => (at, true),
        };
        let known = jiff::Timestamp::from_nanosecond(i128::from(reference.0)).ok()?;
        let year = Offset::UTC.to_datetime(known).year();
        // 29 February occurs at least once in eight years.
        let years = (year - 8..=year + 1).filter_map(of);
        if is_limit {
            return years.filter(|at| at.0 <= reference.0.saturating_add(DAY_NS)).max();
        }
        years.min_by_key(|at| at.0.abs_diff(reference.0))
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Parses a clock of any shape. The outer option is none if there is no clock, the inner one if the clock lacks the
/// day or the year.
pub(super) fn any(c: &mut LineCursor<'_>, clock: &LineClock) -> Option<Option<Timestamp>> {
    iso(c, clock)
        .or_else(|| compact(c, clock))
        .or_else(|| day_first(c, clock))
        .or_else(|| since_epoch(c))
        .map(Some)
        .or_else(|| month_first(c, clock))
        .or_else(|| bare_time(c))
}

/// Parses `20250121 04:41:44`, `20250121-04:41:44`, `20250121T044144`.
fn compact(cursor: &mut LineCursor<'_>, clock: &LineClock) -> Option<Timestamp> {
    let mut c = *cursor;
    let date = c.digits(9).filter(|digits| digits.len() == 8)?;
    let part = |range: std::ops::Range<usize>| date.get(range).and_then(|digits| digits.parse().ok());
    c.eat_any(&['T', ' ', '-', '_']).then_some(())?;
    let mut colons = c;
    let time = match time_of_day(&mut colons) {
        Some(time) => {
            c = colons;
            time
        }
        None => {
            let digits = c.digits(7).filter(|digits| digits.len() == 6)?;
            let part = |range: std::ops::Range<usize>| digits.get(range).and_then(|digits| digits.parse().ok());
            TimeOfDay {
                hour: part(0..2)?,
                minute: part(2..4)?,
                second: part(4..6)?,
                nanos: 0,
            }
        }
    };
    let offset = zone(&mut c).unwrap_or(clock.utc_offset_s);
    ended(&c)?;
    let at = moment(part(0..4)?, part(4..6)?, part(6..8)?, &time, offset)?;
    *cursor = c;
    Some(at)
}

/// Parses `03/04/2025 11:22:33` (month first, as in common Python logger formats), `04/Mar/2025:11:22:33 +0000`,
/// `04-Mar-2025 11:22:33`, `04 Mar 2025 11:22:33`.
fn day_first(cursor: &mut LineCursor<'_>, clock: &LineClock) -> Option<Timestamp> {
    let mut c = *cursor;
    let first = c.number(2)?;
    c.eat_any(&['/', '-', ' ']).then_some(())?;
    let (month, day) = match c.run(|b| b.is_ascii_alphabetic()) {
        Some(name) => (MONTHS.iter().position(|month| *month == name)? as u64 + 1, first),
        None => (first, fixed(&mut c, 2)?),
    };
    c.eat_any(&['/', '-', ' ']).then_some(())?;
    let year = fixed(&mut c, 4)?;
    c.eat_any(&[' ', ':', 'T']).then_some(())?;
    let time = time_of_day(&mut c)?;
    let mut zoned = c;
    zoned.eat(" ");
    let offset = match zone(&mut zoned) {
        Some(offset) => {
            c = zoned;
            offset
        }
        None => clock.utc_offset_s,
    };
    ended(&c)?;
    let at = moment(year, month, day, &time, offset)?;
    *cursor = c;
    Some(at)
}

/// Parses `1741087353.123456`: seconds since 1970 with a fraction.
fn since_epoch(cursor: &mut LineCursor<'_>) -> Option<Timestamp> {
    let mut c = *cursor;
    let seconds = c.digits(11).filter(|digits| digits.len() == 10)?.parse::<i64>().ok()?;
    c.eat(".").then_some(())?;
    let fraction = c.digits(9).filter(|digits| digits.len() >= 3)?;
    ended(&c)?;
    let nanos = fraction.parse::<i64>().ok()? * 10_i64.pow(9 - u32::try_from(fraction.len()).ok()?);
    *cursor = c;
    Some(Timestamp(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Parses `11:22:33`, `11:22:33.123`: a time without a day.
fn bare_time(cursor: &mut LineCursor<'_>) -> Option<Option<Timestamp>> {
    let mut c = *cursor;
    time_of_day(&mut c)?;
    ended(&c)?;
    *cursor = c;
    Some(None)
}

/// Parses `0304 11:22:33.123456` of glog: month and day.
pub(super) fn month_day(cursor: &mut LineCursor<'_>, clock: &LineClock) -> Option<Option<Timestamp>> {
    let mut c = *cursor;
    let month = fixed(&mut c, 2)?;
    let day = fixed(&mut c, 2)?;
    c.spaces().then_some(())?;
    let time = time_of_day(&mut c)?;
    // Rejects numbers that are not a calendar day.
    (1..=12).contains(&month).then_some(())?;
    (1..=31).contains(&day).then_some(())?;
    *cursor = c;
    Some(clock.in_year(month, day, &time))
}

/// Parses `314 03:47:14.018` and `1105 03:47:14.018` of PyTorch: month without a leading zero, day.
pub(super) fn short_month_day(cursor: &mut LineCursor<'_>, clock: &LineClock) -> Option<Option<Timestamp>> {
    let mut c = *cursor;
    let digits = c.digits(5).filter(|digits| matches!(digits.len(), 3 | 4))?;
    let (month, day) = digits.split_at(digits.len() - 2);
    let month = month.parse().ok().filter(|month| (1..=12).contains(month))?;
    let day = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    c.spaces().then_some(())?;
    let time = time_of_day(&mut c)?;
    *cursor = c;
    Some(clock.in_year(month, day, &time))
}

/// Parses `05/06/2026 | 10:10:10 ` (month first) and `May-06-2026 | 10:10:10 ` in columns.
pub(super) fn record_columns(cursor: &mut LineCursor<'_>, clock: &LineClock) -> Option<Timestamp> {
    let mut c = *cursor;
    let month = match c.run(|b| b.is_ascii_alphabetic()) {
        Some(name) => MONTHS.iter().position(|month| *month == name)? as u64 + 1,
        None => fixed(&mut c, 2)?,
    };
    c.eat_any(&['/', '-']).then_some(())?;
    let day = fixed(&mut c, 2)?;
    c.eat_any(&['/', '-']).then_some(())?;
    let year = c.digits(4).filter(|digits| matches!(digits.len(), 2 | 4))?;
    let year = year.parse::<u64>().ok()? + if year.len() == 2 { 2_000 } else { 0 };
    c.spaces();
    c.eat("|").then_some(())?;
    c.spaces();
    let time = time_of_day(&mut c)?;
    let mut zoned = c;
    let offset = match zone(&mut zoned) {
        Some(offset) => {
            c = zoned;
            offset
        }
        None => clock.utc_offset_s,
    };
    c.spaces();
    matches!(c.rest.bytes().next(), None | Some(b'|')).then_some(())?;
    let at = moment(year, month, day, &time, offset)?;
    *cursor = c;
    Some(at)
}

/// Checks that the clock ends at a blank, a closing bracket, a bar, a comma or the end of the line.
fn ended(c: &LineCursor<'_>) -> Option<()> {
    matches!(c.rest.bytes().next(), None | Some(b' ' | b'\t' | b']' | b'|' | b',')).then_some(())
}

/// Parses `2025-01-21T04:41:44,283302+00:00`, `2025-01-21 04:41:44.283`, `2025/01/21 04:41:44`, with or without a
/// zone.
fn iso(cursor: &mut LineCursor<'_>, clock: &LineClock) -> Option<Timestamp> {
    let mut c = *cursor;
    let year = fixed(&mut c, 4)?;
    let separator = if c.eat("-") {
        "-"
    } else if c.eat("/") {
        "/"
    } else if c.eat(".") {
        "."
    } else {
        return None;
    };
    let month = fixed(&mut c, 2)?;
    if !c.eat(separator) {
        return None;
    }
    let day = fixed(&mut c, 2)?;
    // Airflow puts a comma after the day.
    if !c.eat(", ") && !c.eat_any(&['T', ' ', '_', '-']) {
        return None;
    }
    let time = time_of_day(&mut c)?;
    let offset = zone(&mut c).unwrap_or(clock.utc_offset_s);
    let at = moment(year, month, day, &time, offset)?;
    *cursor = c;
    Some(at)
}

/// Parses `Feb 23 16:24:18 2025` or, with the year of the clock, `Feb 23 16:24:18`; a weekday may precede it. The
/// outer option is none if there is no such clock, the inner one if no year is known.
fn month_first(cursor: &mut LineCursor<'_>, clock: &LineClock) -> Option<Option<Timestamp>> {
    let mut c = *cursor;
    if ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "]
        .iter()
        .any(|day| c.eat(day))
    {
        c.spaces();
    }
    let month = c
        .run(|b| b.is_ascii_alphabetic())
        .and_then(|name| MONTHS.iter().position(|m| *m == name))?;
    if !c.spaces() {
        return None;
    }
    let day = c.number(2)?;
    if !c.spaces() {
        return None;
    }
    let mut year = None;
    if let Some(early) = early_year(&mut c) {
        year = Some(early);
    }
    let time = time_of_day(&mut c)?;
    let mut late = c;
    if year.is_none()
        && late.eat(" ")
        && let Some(found) = fixed(&mut late, 4)
        && !late.rest.starts_with(is_word)
    {
        year = Some(found);
        c = late;
    }
    let month = month as u64 + 1;
    let at = match year {
        Some(year) => moment(year, month, day, &time, clock.utc_offset_s),
        None => clock.in_year(month, day, &time),
    };
    *cursor = c;
    Some(at)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '.' || c == '-'
}

/// Parses the year before the time in `Jul 23 2024 07:53:55`, as the fabric manager writes it.
fn early_year(cursor: &mut LineCursor<'_>) -> Option<u64> {
    let mut c = *cursor;
    let year = fixed(&mut c, 4)?;
    if !c.spaces() {
        return None;
    }
    *cursor = c;
    Some(year)
}

struct TimeOfDay {
    hour: u64,
    minute: u64,
    second: u64,
    nanos: u64,
}

fn time_of_day(c: &mut LineCursor<'_>) -> Option<TimeOfDay> {
    let hour = fixed(c, 2)?;
    if !c.eat(":") {
        return None;
    }
    let minute = fixed(c, 2)?;
    if !c.eat(":") {
        return None;
    }
    let second = fixed(c, 2)?;
    let mut nanos = 0;
    let mut fraction = *c;
    if fraction.eat_any(&['.', ','])
        && let Some(digits) = fraction.digits(9)
    {
        nanos = digits.parse::<u64>().ok()? * 10_u64.pow(9 - u32::try_from(digits.len()).ok()?);
        *c = fraction;
    }
    Some(TimeOfDay {
        hour,
        minute,
        second,
        nanos,
    })
}

/// Parses `Z`, `+00:00`, `-0800`, ` UTC`.
fn zone(cursor: &mut LineCursor<'_>) -> Option<i32> {
    let mut c = *cursor;
    if c.eat("Z") || c.eat(" UTC") {
        *cursor = c;
        return Some(0);
    }
    let sign = if c.eat("+") {
        1
    } else if c.eat("-") {
        -1
    } else {
        return None;
    };
    let hours = fixed(&mut c, 2)?;
    c.eat(":");
    let minutes = fixed(&mut c, 2)?;
    *cursor = c;
    Some(sign * i32::try_from(hours * 3600 + minutes * 60).ok()?)
}

fn fixed(c: &mut LineCursor<'_>, len: usize) -> Option<u64> {
    let mut next = *c;
    let digits = next.digits(len)?;
    if digits.len() != len {
        return None;
    }
    *c = next;
    digits.parse().ok()
}

fn moment(year: u64, month: u64, day: u64, time: &TimeOfDay, offset_s: i32) -> Option<Timestamp> {
    let civil = DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
        i8::try_from(time.hour).ok()?,
        i8::try_from(time.minute).ok()?,
        // A leap second is read as the second before it.
        i8::try_from(time.second.min(59)).ok()?,
        i32::try_from(time.nanos).ok()?,
    );
    let at = Offset::from_seconds(offset_s).ok()?.to_timestamp(civil.ok()?).ok()?;
    i64::try_from(at.as_nanosecond()).ok().map(Timestamp)
}
