//! Clocks at the start of lines.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use rankguard_model::Timestamp;

use super::cursor::Cursor;

/// What a reader must know beyond the line to turn its clock into a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineClock {
    /// When the node booted, for lines that count from boot.
    pub boot: Option<Timestamp>,
    /// The year, for syslog lines: they have none.
    pub year: Option<i16>,
    /// Seconds east of Greenwich for clocks that name no zone; 0 reads them as UTC.
    pub utc_offset_s: i32,
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `2025-01-21T04:41:44,283302+00:00`, `2025-01-21 04:41:44.283`, `2025/01/21 04:41:44`, with or without a zone.
pub(super) fn iso(cursor: &mut Cursor<'_>, clock: &LineClock) -> Option<Timestamp> {
    let mut c = *cursor;
    let year = fixed(&mut c, 4)?;
    let separator = if c.eat("-") {
        "-"
    } else if c.eat("/") {
        "/"
    } else {
        return None;
    };
    let month = fixed(&mut c, 2)?;
    if !c.eat(separator) {
        return None;
    }
    let day = fixed(&mut c, 2)?;
    if !(c.eat("T") || c.eat(" ") || c.eat("_")) {
        return None;
    }
    let time = time_of_day(&mut c)?;
    let offset = zone(&mut c).unwrap_or(clock.utc_offset_s);
    let at = moment(year, month, day, time, offset)?;
    *cursor = c;
    Some(at)
}

/// `Feb 23 16:24:18 2025` or, with the year of the clock, `Feb 23 16:24:18`; a weekday may stand before it. The outer option
/// says whether it was read, the inner one is empty when no year is known.
pub(super) fn month_first(cursor: &mut Cursor<'_>, clock: &LineClock) -> Option<Option<Timestamp>> {
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
    let year = year.or(clock.year.and_then(|y| u64::try_from(y).ok()));
    let at = year.and_then(|year| moment(year, month as u64 + 1, day, time, clock.utc_offset_s));
    *cursor = c;
    Some(at)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '.' || c == '-'
}

/// `Jul 23 2024 07:53:55`: the year before the time, as the fabric manager writes it.
fn early_year(cursor: &mut Cursor<'_>) -> Option<u64> {
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

fn time_of_day(c: &mut Cursor<'_>) -> Option<TimeOfDay> {
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

/// `Z`, `+00:00`, `-0800`, ` UTC`.
fn zone(cursor: &mut Cursor<'_>) -> Option<i32> {
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

fn fixed(c: &mut Cursor<'_>, len: usize) -> Option<u64> {
    let mut next = *c;
    let digits = next.digits(len)?;
    if digits.len() != len {
        return None;
    }
    *c = next;
    digits.parse().ok()
}

fn moment(year: u64, month: u64, day: u64, time: TimeOfDay, offset_s: i32) -> Option<Timestamp> {
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
