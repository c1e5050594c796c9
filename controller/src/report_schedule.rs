//! Times of scheduled reports: the newest whole day or week, in a time zone, that is due.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};
use rankguard_model::Timestamp;

/// Folder of the time zones of the system.
const ZONES: &str = "/usr/share/zoneinfo";
/// Largest file of a time zone, bytes.
const ZONE_BYTES_MAX: u64 = 1 << 20;
const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

/// Length of the period of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportPeriod {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday, midnight.
    Week,
}

impl ReportPeriod {
    /// Returns the word in the configuration and in file names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    fn days(self) -> i64 {
        match self {
            Self::Day => 1,
            Self::Week => 7,
        }
    }
}

/// Schedule of reports: each covers the newest whole period before its time.
#[derive(Clone, PartialEq, Eq)]
pub struct ReportSchedule {
    period: ReportPeriod,
    /// Day of the week of a weekly report.
    weekday: Weekday,
    time: Time,
    zone: TimeZone,
}

/// Period of which the report is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuePeriod {
    /// Name of the report: `week-2026-11-23`, with the first day.
    pub(crate) name: String,
    /// Beginning of the period.
    pub(crate) from: Timestamp,
    /// End of the period.
    pub(crate) to: Timestamp,
}

impl ReportSchedule {
    /// Parses the settings `every` (`day` or `week`), `at` (`07:00`, or `Mon 07:00` for a week) and `timezone` (a name of the
    /// system, such as `Europe/Berlin`). Reads the file of the time zone. The error has the setting and the reason.
    pub fn parse(every: &str, at: &str, timezone: &str) -> Result<Self, (&'static str, String)> {
        let period = match every {
            "day" => ReportPeriod::Day,
            "week" => ReportPeriod::Week,
            other => return Err(("every", format!("{other:?} is invalid; expected day or week"))),
        };
        let wrong = || {
            (
                "at",
                format!("{at:?} is invalid; expected a time such as 07:00, for a week Mon 07:00"),
            )
        };
        let (day, time) = match at.trim().split_once(' ') {
            Some((day, time)) => (Some(day.trim().to_ascii_lowercase()), time.trim()),
            None => (None, at.trim()),
        };
        let weekday = match &day {
            None => Weekday::Monday,
            Some(_) if period == ReportPeriod::Day => {
                return Err(("at", format!("{at:?} names a day, but a report is made every day")));
            }
            Some(day) => DAYS.iter().find(|(name, _)| name == day).ok_or_else(wrong)?.1,
        };
        let (hour, minute) = time.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<i8>().ok().filter(|_| text.len() == 2);
        let (hour, minute) = number(hour).zip(number(minute)).ok_or_else(wrong)?;
        Ok(Self {
            period,
            weekday,
            time: Time::new(hour, minute, 0, 0).map_err(|_| wrong())?,
            zone: zone(timezone).map_err(|what| ("timezone", what))?,
        })
    }

    /// Returns the length of the periods.
    pub(crate) fn period(&self) -> ReportPeriod {
        self.period
    }

    /// Returns the newest period of which the report is due; `None` at times that no calendar has.
    pub(crate) fn due(&self, now: Timestamp) -> Option<DuePeriod> {
        let now = zoned(now, &self.zone)?;
        let mut day = now.date();
        if self.period == ReportPeriod::Week {
            let past = day.weekday().since(self.weekday);
            day = day.checked_sub(past.days()).ok()?;
        }
        // A time that a change of the clock skips is later by the length of the change.
        if day.to_datetime(self.time).to_zoned(self.zone.clone()).ok()? > now {
            day = day.checked_sub(self.period.days().days()).ok()?;
        }
        let end = match self.period {
            ReportPeriod::Day => day,
            ReportPeriod::Week => day.checked_sub(day.weekday().since(Weekday::Monday).days()).ok()?,
        };
        let first = end.checked_sub(self.period.days().days()).ok()?;
        Some(DuePeriod {
            name: format!("{}-{first}", self.period.word()),
            from: self.midnight(first)?,
            to: self.midnight(end)?,
        })
    }

    /// Returns the beginning of a day.
    fn midnight(&self, date: Date) -> Option<Timestamp> {
        let begin = date.to_zoned(self.zone.clone()).ok()?;
        Some(Timestamp::from_millis(begin.timestamp().as_millisecond()))
    }
}

fn zoned(at: Timestamp, zone: &TimeZone) -> Option<Zoned> {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).ok()?;
    Some(at.to_zoned(zone.clone()))
}

/// Reads a time zone of the system.
fn zone(name: &str) -> Result<TimeZone, String> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '/');
    if name.is_empty() || name.starts_with('/') || !name.chars().all(is_plain) {
        return Err(format!(
            "{name:?} is invalid; expected UTC or a name such as Europe/Berlin"
        ));
    }
    let path = Path::new(ZONES).join(name);
    let mut file = Vec::new();
    let opened = rankguard_files::open_regular(&path);
    let read = opened.and_then(|opened| opened.take(ZONE_BYTES_MAX).read_to_end(&mut file));
    read.map_err(|problem| format!("cannot read {}: {problem}", path.display()))?;
    TimeZone::tzif(name, &file).map_err(|problem| format!("{} is no time zone: {problem}", path.display()))
}

impl fmt::Debug for ReportSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (period, weekday, time) = (self.period, self.weekday, self.time);
        write!(
            f,
            "ReportSchedule({period:?}, {weekday:?} {time}, {:?})",
            self.zone.iana_name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let parsed: jiff::Timestamp = text.parse().expect("a time");
        Timestamp::from_millis(parsed.as_millisecond())
    }

    fn check(every: &str, time: &str, timezone: &str, cases: &[(&str, &str, &str, &str)]) {
        let schedule = ReportSchedule::parse(every, time, timezone).expect("a schedule");
        for (now, name, from, to) in cases {
            let due = schedule.due(at(now)).expect("a period");
            assert_eq!(
                (due.name.as_str(), due.from, due.to),
                (*name, at(from), at(to)),
                "{now}"
            );
        }
    }

    /// 2026-11-30 is a Monday.
    #[test]
    fn a_week_is_due_at_its_time_and_not_before() {
        let before = ("week-2026-11-16", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z");
        let after = ("week-2026-11-23", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z");
        check(
            "week",
            "Mon 07:00",
            "UTC",
            &[
                ("2026-11-30T06:59:59Z", before.0, before.1, before.2),
                ("2026-11-30T07:00:00Z", after.0, after.1, after.2),
                ("2026-12-07T06:59:59Z", after.0, after.1, after.2),
            ],
        );
        // A report on Friday is about the week before, which is whole.
        check(
            "week",
            "fri 18:30",
            "UTC",
            &[("2026-12-04T18:30:00Z", after.0, after.1, after.2)],
        );
    }

    /// Berlin sets its clocks back on 2026-10-25, and forward on 2026-03-29 at 02:00.
    #[test]
    fn days_follow_the_clock_of_the_zone() {
        check(
            "day",
            "02:30",
            "Europe/Berlin",
            &[
                (
                    "2026-10-26T01:29:59Z",
                    "day-2026-10-24",
                    "2026-10-23T22:00:00Z",
                    "2026-10-24T22:00:00Z",
                ),
                (
                    "2026-10-26T01:30:00Z",
                    "day-2026-10-25",
                    "2026-10-24T22:00:00Z",
                    "2026-10-25T23:00:00Z",
                ),
                (
                    "2026-03-29T01:29:59Z",
                    "day-2026-03-27",
                    "2026-03-26T23:00:00Z",
                    "2026-03-27T23:00:00Z",
                ),
                (
                    "2026-03-29T01:30:00Z",
                    "day-2026-03-28",
                    "2026-03-27T23:00:00Z",
                    "2026-03-28T23:00:00Z",
                ),
            ],
        );
    }

    #[test]
    fn mistakes_name_their_setting() {
        for (every, time, timezone, setting) in [
            ("month", "07:00", "UTC", "every"),
            ("day", "Mon 07:00", "UTC", "at"),
            ("week", "Moon 07:00", "UTC", "at"),
            ("week", "7:00", "UTC", "at"),
            ("week", "24:00", "UTC", "at"),
            ("week", "", "UTC", "at"),
            ("day", "07:00", "Europe/Atlantis", "timezone"),
            ("day", "07:00", "../../etc/passwd", "timezone"),
            ("day", "07:00", "zone.tab", "timezone"),
            ("day", "07:00", "", "timezone"),
        ] {
            let refused = ReportSchedule::parse(every, time, timezone).expect_err(time);
            assert_eq!(refused.0, setting, "{refused:?}");
        }
    }
}
