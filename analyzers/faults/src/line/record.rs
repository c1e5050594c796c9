//! Records of structured loggers: one JSON object a line, with the message and the traceback of the program inside.
//!
//! A record of a warning or worse is read as the lines that its message, its error and its traceback would have without the
//! logger, each below the prefix of the record: its time, level, host and rank. Names of members are those of python-json-logger,
//! structlog, zap, pino and bunyan, of the Elastic Common Schema, and of Cloud Logging.

use super::LogLevel;
use super::container::{blanks, string};
use super::cursor::LineCursor;
use super::moment::{self, LineClock};

/// Maximum length of a prefix before the object, bytes.
const PREFIX: usize = 160;
/// Maximum depth of nested objects that are read.
const DEPTH: usize = 3;
/// Maximum number of members that are read.
const MEMBERS: usize = 128;
/// Maximum number of lines of a record.
const LINES: usize = 256;

/// Members with the message, first choice first.
const MESSAGES: [&str; 5] = ["message", "msg", "textPayload", "jsonPayload.message", "event"];
/// Members with the level.
const LEVELS: [&str; 7] = [
    "level",
    "levelname",
    "severity",
    "lvl",
    "log.level",
    "loglevel",
    "level_name",
];
/// Members with the time.
const TIMES: [&str; 6] = ["@timestamp", "asctime", "time", "timestamp", "ts", "created"];
/// Members with the global rank.
const RANKS: [&str; 3] = ["rank", "global_rank", "world_rank"];
/// Members with the host.
const HOSTS: [&str; 6] = ["host", "hostname", "host.name", "host_name", "node", "nodename"];
/// Last parts of names of members with an error or a traceback.
const ERRORS: [&str; 8] = [
    "exc_info",
    "exc_text",
    "exception",
    "traceback",
    "stack_trace",
    "stacktrace",
    "error",
    "err",
];
/// Members with a reason in a word or two, which means nothing without the message.
const REASONS: [&str; 2] = ["reason", "cause"];

/// Converts a record to lines in the form of other logs: `2026-05-03T10:00:00Z ERROR: (record pid=0, ip=n7) [rank3]: text`.
/// Returns none for anything else, and for a record of less than a warning.
pub(super) fn lines(raw: &[u8]) -> Option<String> {
    let raw = raw.trim_ascii_end();
    raw.ends_with(b"}").then_some(())?;
    let start = memchr::memchr(b'{', &raw[..raw.len().min(PREFIX)])?;
    let outer = &raw[..start];
    if outer.contains(&b'"') || !(outer.is_empty() || outer.ends_with(b" ") || outer.ends_with(b":")) {
        return None;
    }
    let mut rest = &raw[start..];
    let mut members = Vec::new();
    object(&mut rest, "", DEPTH, &mut members)?;
    if !rest.is_empty() {
        return None;
    }
    let of = |names: &[&str]| {
        let found = names
            .iter()
            .find_map(|name| members.iter().find(|(key, _)| key == name));
        found.map(|(_, value)| value.as_str())
    };
    let level = of(&LEVELS)
        .and_then(level)
        .filter(|level| *level >= LogLevel::Warning)?;
    let message = of(&MESSAGES)?;
    let head = String::from_utf8_lossy(outer).into_owned();
    let at = of(&TIMES).and_then(time);
    let host = of(&HOSTS).filter(|host| !host.is_empty() && !host.contains([',', ')', ' ']));
    let host = host.map(|host| format!("(record pid=0, ip={host}) "));
    let rank =
        of(&RANKS).filter(|rank| !rank.is_empty() && rank.len() <= 7 && rank.bytes().all(|b| b.is_ascii_digit()));
    let rank = rank.map(|rank| format!("[rank{rank}]: "));
    // Without a time the level of a fatal record is a part of its message, as in `CRITICAL: text`.
    let is_fatal = level == LogLevel::Critical;
    let graded = match at.as_deref() {
        Some(at) => Some(format!("{at} {}: ", name(level))),
        None => is_fatal.then(|| format!("{}: ", name(level))),
    };
    let [graded, host, rank] = [graded, host, rank].map(Option::unwrap_or_default);
    let is_error = |key: &str| ERRORS.contains(&key.rsplit('.').next().unwrap_or(key));
    let errors = members.iter().filter(|(key, value)| is_error(key) && value != message);
    let reason = of(&REASONS).map(|reason| format!("{message}, reason: {reason}"));
    let texts = std::iter::once(reason.as_deref().unwrap_or(message)).chain(errors.map(|(_, value)| value.as_str()));
    let lines = texts.flat_map(str::lines).filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines
        .take(LINES)
        .map(|line| format!("{head}{graded}{host}{rank}{line}"))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Reads an object, with its braces, into names and values of its members; nested names are joined with dots. Returns none
/// if it is not well formed. No strict parser of JSON reads what Python's loggers write: `NaN` and `Infinity` are values, and
/// members are read in their order.
fn object(rest: &mut &[u8], path: &str, depth: usize, members: &mut Vec<(String, String)>) -> Option<()> {
    *rest = blanks(rest.strip_prefix(b"{")?);
    if let Some(after) = rest.strip_prefix(b"}") {
        *rest = after;
        return Some(());
    }
    loop {
        *rest = blanks(rest).strip_prefix(b"\"")?;
        let key = string(rest);
        *rest = blanks(blanks(rest).strip_prefix(b":")?);
        let key = if path.is_empty() { key } else { format!("{path}.{key}") };
        value(rest, &key, depth, members)?;
        *rest = blanks(rest);
        if let Some(after) = rest.strip_prefix(b",") {
            *rest = after;
            continue;
        }
        *rest = rest.strip_prefix(b"}")?;
        return Some(());
    }
}

/// Reads a value; strings and numbers become members.
fn value(rest: &mut &[u8], key: &str, depth: usize, members: &mut Vec<(String, String)>) -> Option<()> {
    match rest.first()? {
        b'"' => {
            *rest = &rest[1..];
            let text = string(rest);
            if members.len() < MEMBERS {
                members.push((key.to_owned(), text));
            }
        }
        b'{' if depth > 0 => object(rest, key, depth - 1, members)?,
        b'{' | b'[' => skip(rest)?,
        _ => {
            let end = rest.iter().position(|byte| b",]} \t".contains(byte))?;
            let (number, after) = rest.split_at(end);
            *rest = after;
            if members.len() < MEMBERS && number.first().is_some_and(|byte| byte.is_ascii_digit()) {
                members.push((key.to_owned(), String::from_utf8_lossy(number).into_owned()));
            }
        }
    }
    Some(())
}

/// Skips an object or a list.
fn skip(rest: &mut &[u8]) -> Option<()> {
    let mut open = 0_usize;
    loop {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        match byte {
            b'"' => drop(string(rest)),
            b'{' | b'[' => open += 1,
            b'}' | b']' => {
                open -= 1;
                if open == 0 {
                    return Some(());
                }
            }
            _ => {}
        }
    }
}

/// Returns a level by its name, or by its number: 50 is an error for bunyan, pino and Python.
fn level(word: &str) -> Option<LogLevel> {
    if let Ok(number) = word.parse::<u32>() {
        return Some(match number {
            50 => LogLevel::Error,
            51.. => LogLevel::Critical,
            40..50 => LogLevel::Warning,
            _ => LogLevel::Info,
        });
    }
    Some(match word.to_ascii_lowercase().as_str() {
        "warning" | "warn" => LogLevel::Warning,
        "error" | "err" => LogLevel::Error,
        "critical" | "fatal" | "alert" | "emergency" | "panic" | "dpanic" => LogLevel::Critical,
        _ => return None,
    })
}

fn name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Critical => "CRITICAL",
        LogLevel::Error => "ERROR",
        _ => "WARNING",
    }
}

/// Returns a time in a form that begins a line: the text of a clock with a day, or a number of seconds, milliseconds,
/// microseconds or nanoseconds since 1970.
pub(super) fn time(stated: &str) -> Option<String> {
    let (whole, fraction) = stated.split_once('.').unwrap_or((stated, ""));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !whole.is_empty() && is_number(whole) && is_number(fraction) {
        let scale = match whole.len() {
            10 => 0,
            13 => 3,
            16 => 6,
            19 => 9,
            _ => return None,
        };
        let (seconds, rest) = whole.split_at(whole.len() - scale);
        return Some(format!("{seconds}.{:0<9.9}", format!("{rest}{fraction}")));
    }
    let mut c = LineCursor::new(stated);
    let is_clock = matches!(moment::any(&mut c, &LineClock::default()), Some(Some(_))) && c.rest.is_empty();
    is_clock.then(|| stated.to_owned())
}
