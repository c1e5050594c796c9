//! Times in which messages are held back: quiet hours, which return every day or week, and maintenance windows.

use std::fmt;
use std::str::FromStr;

use rankguard_model::Timestamp;
use serde::{Serialize, Serializer};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MINUTES: i64 = 24 * 60;
/// Day of the week on which the Unix epoch begins, counted from Monday.
const EPOCH_DAY: i64 = 3;

/// Hours of some days of the week, in UTC: `22:00-07:00`, `sat-sun 00:00-24:00`. Hours over midnight belong to the day
/// on which they begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuietHours {
    text: String,
    /// Days on which they begin, from Monday.
    days: [bool; 7],
    /// Begin and end, minutes of the day.
    from: i64,
    to: i64,
}

/// Time between two moments: `2026-12-01T20:00:00Z/2026-12-02T04:00:00Z`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceWindow {
    text: String,
    from: Timestamp,
    to: Timestamp,
}

impl QuietHours {
    /// Returns true if they include a time.
    pub fn contains(&self, at: Timestamp) -> bool {
        let minutes = at.as_millis().div_euclid(60_000);
        let minute = minutes.rem_euclid(DAY_MINUTES);
        let day = (minutes.div_euclid(DAY_MINUTES) + EPOCH_DAY).rem_euclid(7);
        let is_day = |day: i64| {
            let day = usize::try_from(day.rem_euclid(7)).unwrap_or_default();
            self.days.get(day).copied().unwrap_or_default()
        };
        if self.from < self.to {
            return is_day(day) && (self.from..self.to).contains(&minute);
        }
        is_day(day) && minute >= self.from || is_day(day - 1) && minute < self.to
    }
}

impl MaintenanceWindow {
    /// Returns true if it includes a time.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

impl FromStr for QuietHours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is invalid; expected hours in UTC such as 22:00-07:00 or sat-sun 00:00-24:00");
        let (days, hours) = match text.trim().split_once(' ') {
            Some((days, hours)) => (parse_days(days).ok_or_else(wrong)?, hours),
            None => ([true; 7], text),
        };
        let (from, to) = hours.trim().split_once('-').ok_or_else(wrong)?;
        let (from, to) = (
            parse_minute(from).ok_or_else(wrong)?,
            parse_minute(to).ok_or_else(wrong)?,
        );
        if from == to || from == DAY_MINUTES {
            return Err(wrong());
        }
        let text = text.to_owned();
        Ok(Self { text, days, from, to })
    }
}

/// Parses `mon`, `mon-fri` or `mon,wed-thu`.
fn parse_days(text: &str) -> Option<[bool; 7]> {
    let day = |name: &str| DAYS.iter().position(|known| *known == name.to_ascii_lowercase());
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        loop {
            *days.get_mut(at)? = true;
            if at == last {
                break;
            }
            at = (at + 1) % 7;
        }
    }
    Some(days)
}

fn parse_minute(text: &str) -> Option<i64> {
    let (hour, minute) = text.split_once(':')?;
    let is_form =
        hour.len() == 2 && minute.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    let (hour, minute): (i64, i64) = (hour.parse().ok()?, minute.parse().ok()?);
    let total = hour * 60 + minute;
    (is_form && minute < 60 && total <= DAY_MINUTES).then_some(total)
}

impl FromStr for MaintenanceWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is invalid; expected two times such as 2026-12-01T20:00:00Z/2026-12-02T04:00:00Z");
        let moment = |text: &str| {
            let parsed: jiff::Timestamp = text.trim().parse().ok()?;
            Some(Timestamp::from_millis(parsed.as_millisecond()))
        };
        let (from, to) = text.split_once('/').ok_or_else(wrong)?;
        let (from, to) = (moment(from).ok_or_else(wrong)?, moment(to).ok_or_else(wrong)?);
        if from >= to {
            return Err(format!("{text:?} is invalid; the end is not after the beginning"));
        }
        let text = text.to_owned();
        Ok(Self { text, from, to })
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for MaintenanceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for QuietHours {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Serialize for MaintenanceWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let parsed: jiff::Timestamp = text.parse().expect("a time");
        Timestamp::from_millis(parsed.as_millisecond())
    }

    /// 2026-11-30 is a Monday.
    #[test]
    fn hours_over_midnight_belong_to_the_day_on_which_they_begin() {
        let hours: QuietHours = "mon-fri 22:00-07:00".parse().expect("hours");
        for (time, expect) in [
            ("2026-11-30T06:59:00Z", false),
            ("2026-11-30T21:59:59Z", false),
            ("2026-11-30T22:00:00Z", true),
            ("2026-12-01T06:59:59Z", true),
            ("2026-12-01T07:00:00Z", false),
            ("2026-12-05T06:00:00Z", true),
            ("2026-12-05T23:00:00Z", false),
            ("2026-12-07T06:00:00Z", false),
        ] {
            assert_eq!(hours.contains(at(time)), expect, "{time}");
        }
        let weekend: QuietHours = "sat,sun 00:00-24:00".parse().expect("hours");
        assert!(weekend.contains(at("2026-12-06T23:59:59Z")) && !weekend.contains(at("2026-12-07T00:00:00Z")));
    }

    #[test]
    fn a_window_includes_its_beginning_and_not_its_end() {
        let window: MaintenanceWindow = "2026-12-01T20:00:00Z/2026-12-02T04:00:00+01:00"
            .parse()
            .expect("a window");
        for (time, expect) in [
            ("2026-12-01T19:59:59Z", false),
            ("2026-12-01T20:00:00Z", true),
            ("2026-12-02T02:59:59Z", true),
            ("2026-12-02T03:00:00Z", false),
        ] {
            assert_eq!(window.contains(at(time)), expect, "{time}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "22-07",
            "25:00-07:00",
            "24:00-07:00",
            "07:00-07:00",
            "so 07:00-08:00",
            "7:00-8:00",
        ] {
            assert!(text.parse::<QuietHours>().is_err(), "{text:?}");
        }
        for text in ["", "2026-12-01/2026-12-02", "2026-12-02T00:00:00Z/2026-12-01T00:00:00Z"] {
            assert!(text.parse::<MaintenanceWindow>().is_err(), "{text:?}");
        }
    }
}
