//! Clocks that are read but remain in the message, because signatures match the text around them.

use rankguard_model::{Rank, Timestamp};

use super::cursor::LineCursor;
use super::moment::{self, LineClock};
use super::{LogLevel, ParsedLine, prefix, record};

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
    } else if line.text.starts_with('{') {
        structured(line, clock);
    } else {
        line.at = cancellation(line.text, clock).or_else(|| behind_progress_bar(line.text, clock));
    }
}

/// Parses the clock of a line that follows a progress bar without a line end: ` 69%|###   | 69/100 [28:51<28:26,
/// 5.52s/it]2026-11-24 10:00:00,294 WARNING ...`.
fn behind_progress_bar(text: &str, clock: &LineClock) -> Option<Timestamp> {
    let (_, bar) = text.split_once("%|")?;
    let (bar, rest) = bar.split_once(']')?;
    let is_pace = ["it/s", "s/it", "?it/s"].iter().any(|unit| bar.contains(unit)) && bar.contains('[');
    is_pace.then_some(())?;
    moment::any(&mut LineCursor::new(rest.trim_start()), clock)?
}

/// Parses `*** STEP 771.0 ON n7 CANCELLED AT 2026-11-24T10:00:00 ***` of slurmstepd: the time at which it ended the step.
fn cancellation(text: &str, clock: &LineClock) -> Option<Timestamp> {
    let (before, stated) = text.split_once(" CANCELLED AT ")?;
    before.contains("slurmstepd").then_some(())?;
    moment::any(&mut LineCursor::new(stated), clock)?
}

/// Names of the time in records of structured loggers.
const TIMES: [&str; 5] = ["@timestamp", "asctime", "time", "timestamp", "ts"];

/// Reads time, rank, host and level of a record of a structured logger: `{"ts": "...", "level": "error", "rank": 7, ...}`.
fn structured<'a>(line: &mut ParsedLine<'a>, clock: &LineClock) {
    let text = line.text;
    let stated = TIMES.iter().find_map(|name| member(text, name));
    let written = |stated: &str| moment::any(&mut LineCursor::new(stated), clock).flatten();
    let counted = |stated: &str| written(&record::time(stated)?);
    let Some(at) = stated.and_then(|stated| written(stated).or_else(|| counted(stated))) else {
        return;
    };
    line.at = Some(at);
    line.rank = line.rank.or_else(|| member(text, "rank")?.parse().ok().map(Rank));
    let host = || {
        let names = ["host", "hostname", "host_name"];
        names.iter().find_map(|name| member(text, name))
    };
    line.host = line.host.or_else(host);
    line.level = line.level.or_else(|| prefix::level_of(member(text, "level")?));
}

/// Returns the string or number of a member of a JSON object on one line; `None` for a string with an escape.
fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let quoted = |at: usize| text[..at].ends_with('"') && text[at + name.len()..].starts_with("\":");
    let (at, _) = text.match_indices(name).find(|(at, _)| quoted(*at))?;
    let value = text[at + name.len() + 2..].trim_start();
    match value.strip_prefix('"') {
        Some(rest) => rest
            .split_once('"')
            .map(|(value, _)| value)
            .filter(|value| !value.contains('\\')),
        None => value.split([',', '}']).next().map(str::trim_end),
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
