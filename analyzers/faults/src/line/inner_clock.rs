//! Clocks that are read but remain in the message, because signatures match the text around them.

use rankguard_model::Timestamp;

use super::cursor::LineCursor;
use super::moment::{self, LineClock};
use super::{LogLevel, ParsedLine};

/// Sets time and level of a line without a clock in its prefix.
pub(super) fn read(line: &mut ParsedLine<'_>, clock: &LineClock) {
    if line.at.is_some() || line.since_boot_us.is_some() {
        return;
    }
    if let Some((level, at)) = bracketed_glog(line.text, clock) {
        line.at = at;
        line.level = line.level.or(level);
    } else if let Some(at) = event_record(line.text, clock) {
        line.at = Some(at);
    }
}

/// Parses `[E314 03:47:14.018811902 ProcessGroupNCCL.cpp:542] ` of PyTorch: level, month without a leading zero, day. The
/// level is none for information, which PyTorch prints with the same prefix as failures.
fn bracketed_glog(text: &str, clock: &LineClock) -> Option<(Option<LogLevel>, Option<Timestamp>)> {
    let mut c = LineCursor::new(text);
    c.eat("[").then_some(())?;
    let levels = [
        ("I", None),
        ("V", None),
        ("W", Some(LogLevel::Warning)),
        ("E", Some(LogLevel::Error)),
        ("F", Some(LogLevel::Critical)),
    ];
    let (_, level) = levels.into_iter().find(|(letter, _)| c.eat(letter))?;
    Some((level, moment::short_month_day(&mut c, clock)?))
}

/// Parses `1 | 05/06/2026 | 10:10:10 | ` of a system event log (IPMI): number, month first, time.
fn event_record(text: &str, clock: &LineClock) -> Option<Timestamp> {
    let mut c = LineCursor::new(text);
    c.spaces();
    c.run(|b| b.is_ascii_hexdigit()).filter(|number| number.len() <= 8)?;
    c.spaces();
    c.eat("|").then_some(())?;
    c.spaces();
    moment::record_columns(&mut c, clock)
}
