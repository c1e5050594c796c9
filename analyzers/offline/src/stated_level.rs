//! Level that the writer of a line gave it, in the formats of common loggers, with or without a time.
//!
//! The prefixes of lines with a time are read by [`line::parse`]. Without a time the level is a word at the start (`ERROR: text`,
//! `[ERROR] text`, `ERROR:root:text`), a field between separators (`trainer - FATAL - text`, `main | ERROR | text`), a key of
//! logfmt (`level=fatal msg="text"`), or a member of a JSON object.

use rankguard_faults::line::{LogLevel, ParsedLine};

/// Keys of logfmt with the level: Go's `log/slog`, logrus, zerolog.
const KEYS: [&str; 3] = ["level=", "lvl=", "severity="];
/// Members of JSON objects with the level: zap, structlog, python-json-logger, Cloud Logging.
const MEMBERS: [&str; 5] = ["\"level\"", "\"levelname\"", "\"severity\"", "\"lvl\"", "\"log.level\""];
/// Separators of fields.
const SEPARATORS: [&str; 2] = [" - ", " | "];
/// Maximum number of fields before the message: time, logger, level and place.
const FIELDS: usize = 4;

/// Returns the level of a line of a program; `None` without one, and for lines of the kernel.
pub(crate) fn stated_level(line: &ParsedLine<'_>) -> Option<LogLevel> {
    if line.kernel {
        return None;
    }
    let text = line.text.trim_start();
    line.level
        .or_else(|| of_object(text))
        .or_else(|| at_start(text))
        .or_else(|| of_fields(text))
        .or_else(|| of_keys(text))
}

/// Reads `ERROR: text`, `[ERROR] text`, `ERROR:root:text`, `CRITICAL text`. In upper case: programs begin sentences with `error:`.
fn at_start(text: &str) -> Option<LogLevel> {
    let (word, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => text.split_at(text.find(|c: char| !c.is_ascii_uppercase())?),
    };
    let is_bounded = text.starts_with('[') || rest.starts_with([':', '|']) || rest.starts_with("  ");
    is_bounded.then(|| level(word.trim()))?
}

/// Reads `2026-11-30 10:00:00,123 - trainer - FATAL - text` and `main | ERROR | text`.
fn of_fields(text: &str) -> Option<LogLevel> {
    let of = |separator: &&str| {
        let fields = text.split(*separator).map(str::trim);
        let count = text.matches(*separator).count().min(FIELDS);
        fields.take(count).find_map(level)
    };
    SEPARATORS.iter().find_map(of)
}

/// Reads `level=fatal msg="text"`.
fn of_keys(text: &str) -> Option<LogLevel> {
    let mut words = text.split_whitespace();
    let value = words.find_map(|word| KEYS.iter().find_map(|key| word.strip_prefix(key)))?;
    level(&value.trim_matches('"').to_ascii_uppercase())
}

/// Reads `{"level": "fatal", ...}`.
fn of_object(text: &str) -> Option<LogLevel> {
    let inside = text.strip_prefix('{')?;
    let rest = MEMBERS.iter().find_map(|name| Some(inside.split_once(name)?.1))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    level(&value.split_once('"')?.0.to_ascii_uppercase())
}

/// Returns the level that a word in upper case names.
fn level(word: &str) -> Option<LogLevel> {
    Some(match word {
        "FATAL" | "CRITICAL" | "CRIT" | "PANIC" | "DPANIC" | "ALERT" | "EMERGENCY" => LogLevel::Critical,
        "ERROR" | "ERR" => LogLevel::Error,
        "WARNING" | "WARN" => LogLevel::Warning,
        "INFO" | "NOTICE" => LogLevel::Info,
        "DEBUG" | "TRACE" => LogLevel::Debug,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankguard_faults::line::{LineClock, parse};

    #[test]
    fn usual_formats_state_their_level() {
        for (text, expect) in [
            ("level=fatal msg=\"worker pool failed\"", Some(LogLevel::Critical)),
            ("time=10:00 level=ERROR msg=\"pool failed\"", Some(LogLevel::Error)),
            (
                "{\"level\":\"fatal\",\"msg\":\"pool failed\"}",
                Some(LogLevel::Critical),
            ),
            ("{\"severity\": \"ERROR\", \"message\": \"x\"}", Some(LogLevel::Error)),
            (
                "2026-11-30 10:00:00,123 - trainer - FATAL - Failed",
                Some(LogLevel::Critical),
            ),
            ("trainer - ERROR - pool failed", Some(LogLevel::Error)),
            (
                "2026-11-30 10:00:00.123 | ERROR    | main:run:7 - pool failed",
                Some(LogLevel::Error),
            ),
            (
                "E1130 10:00:00.123456  881 pool.cc:7] pool failed",
                Some(LogLevel::Error),
            ),
            (
                "F1130 10:00:00.123456  881 pool.cc:7] pool failed",
                Some(LogLevel::Critical),
            ),
            ("ERROR: failed to parse option --foo", Some(LogLevel::Error)),
            ("ERROR:root:pool failed", Some(LogLevel::Error)),
            ("ERROR    pool failed", Some(LogLevel::Error)),
            ("[ERROR] pool failed", Some(LogLevel::Error)),
            ("2026-11-30T10:00:00Z ERROR worker pool failed", Some(LogLevel::Error)),
            (
                "[2026-11-30 10:00:00,001] [ERROR] [runner.py:8:main] pool failed",
                Some(LogLevel::Error),
            ),
            ("INFO: level=error is the default", Some(LogLevel::Info)),
            ("log_level=error", None),
            ("ERRORS of earlier runs were cleared", None),
            ("error: 0 of 12 checks", None),
            ("the loss - ERROR of the fit", None),
            ("{\"event\": \"ERROR\"}", None),
        ] {
            assert_eq!(stated_level(&parse(text, &LineClock::default())), expect, "{text}");
        }
    }
}
