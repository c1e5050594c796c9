//! Prefixes that kernels, system loggers and framework loggers put before a message.

use rankguard_model::Timestamp;

use super::cursor::LineCursor;
use super::moment::{self, LineClock};
use super::syslog_host::SyslogWords;
use super::{LogLevel, ParsedLine, launcher};

/// Removes one prefix from `line.text`. Returns false if none is left.
pub(super) fn peel(line: &mut ParsedLine<'_>, clock: &LineClock) -> bool {
    kmsg(line)
        || priority(line)
        || since_boot(line)
        || facility(line)
        || ras(line)
        || notebook(line)
        || event_log(line)
        || clocked(line, clock)
        || glog(line, clock)
        || (!line.kernel && launcher::peel(line, clock))
}

/// Parses `/dev/kmsg`: `6,3964,206764307,-;text`, and its ` KEY=value` lines.
fn kmsg(line: &mut ParsedLine<'_>) -> bool {
    if line.kernel_seq.is_some() {
        return false;
    }
    let mut c = LineCursor::new(line.text);
    let (Some(prio), true) = (c.number(4), c.eat(",")) else {
        return false;
    };
    let (Some(seq), true) = (c.number(19), c.eat(",")) else {
        return false;
    };
    let (Some(micros), true) = (c.number(19), c.eat(",")) else {
        return false;
    };
    let Some((flags, text)) = c.rest.split_once(';') else {
        return false;
    };
    if flags.len() > 64 {
        return false;
    }
    line.kernel = true;
    line.kernel_seq = Some(seq);
    line.since_boot_us = Some(micros);
    line.continuation = flags.starts_with('c') || flags.starts_with('+');
    line.level = Some(kernel_level(prio));
    line.text = text;
    true
}

fn kernel_level(prio: u64) -> LogLevel {
    match prio % 8 {
        0..=2 => LogLevel::Critical,
        3 => LogLevel::Error,
        4 => LogLevel::Warning,
        5 | 6 => LogLevel::Info,
        _ => LogLevel::Debug,
    }
}

/// Parses `<6>` of raw ring dumps and pstore.
fn priority(line: &mut ParsedLine<'_>) -> bool {
    let mut c = LineCursor::new(line.text);
    if !c.eat("<") {
        return false;
    }
    let Some(prio) = c.number(3) else { return false };
    if !c.eat(">") {
        return false;
    }
    line.level = Some(kernel_level(prio));
    line.text = c.rest;
    true
}

/// Parses `[  123.456789] ` of dmesg.
fn since_boot(line: &mut ParsedLine<'_>) -> bool {
    if line.since_boot_us.is_some() {
        return false;
    }
    let mut c = LineCursor::new(line.text);
    if !c.eat("[") {
        return false;
    }
    c.spaces();
    // Ten digits are seconds since 1970.
    let (Some(seconds), true) = (c.number(9), c.eat(".")) else {
        return false;
    };
    let Some(fraction) = c.digits(6).filter(|digits| digits.len() == 6) else {
        return false;
    };
    // Some kernels add the caller: `[  12.345678][  T123]`.
    if !c.eat("]") {
        return false;
    }
    let mut caller = c;
    if caller.eat("[") {
        caller.spaces();
        if caller.run(|b| b.is_ascii_alphanumeric()).is_some() && caller.eat("]") {
            c = caller;
        }
    }
    c.spaces();
    line.kernel = true;
    line.since_boot_us = Some(
        seconds
            .saturating_mul(1_000_000)
            .saturating_add(fraction.parse().unwrap_or(0)),
    );
    line.text = c.rest;
    true
}

/// Parses `kern  :warn  : ` of `dmesg --decode`.
fn facility(line: &mut ParsedLine<'_>) -> bool {
    const FACILITIES: [&str; 8] = ["kern", "user", "daemon", "syslog", "auth", "mail", "cron", "authpriv"];
    let mut c = LineCursor::new(line.text);
    let known = c
        .run(|b| b.is_ascii_lowercase())
        .is_some_and(|name| FACILITIES.contains(&name));
    if !known {
        return false;
    }
    c.spaces();
    if !c.eat(":") {
        return false;
    }
    let level = match c.run(|b| b.is_ascii_lowercase()) {
        Some("emerg" | "alert" | "crit") => LogLevel::Critical,
        Some("err") => LogLevel::Error,
        Some("warn") => LogLevel::Warning,
        Some("notice" | "info") => LogLevel::Info,
        Some("debug") => LogLevel::Debug,
        _ => return false,
    };
    c.spaces();
    if !c.eat(":") {
        return false;
    }
    c.spaces();
    line.kernel = true;
    line.level = Some(level);
    line.text = c.rest;
    true
}

/// Parses `1117838570 2005.06.03 R02-M1-N0 2005-06-03-15.42.50.363779 R02-M1-N0 RAS KERNEL FATAL ` of Blue Gene/L:
/// seconds since 1970, day, location before and after its own clock, facility and severity. Collections of such logs
/// put the label of an alert, or `-`, before it. `FATAL` events end an application, `INFO` events report normal
/// progress (severities of RAS events:
/// <https://reports.alcf.anl.gov/data/datadictionary/datadictionary_ras_event.html>).
fn ras(line: &mut ParsedLine<'_>) -> bool {
    let mut c = LineCursor::new(line.text);
    let mut labelled = c;
    if labelled.run(|b| b.is_ascii_uppercase() || b == b'-').is_some() && labelled.eat(" ") {
        c = labelled;
    }
    let seconds = c.digits(10).filter(|digits| digits.len() == 10);
    let Some(seconds) = seconds.and_then(|digits| digits.parse::<i64>().ok()) else {
        return false;
    };
    let (Some(_day), Some(place), Some(_clock), Some(_place)) =
        (word(&mut c), word(&mut c), word(&mut c), word(&mut c))
    else {
        return false;
    };
    if word(&mut c) != Some("RAS") || word(&mut c).is_none() {
        return false;
    }
    let level = match word(&mut c) {
        Some("INFO") => LogLevel::Info,
        Some("WARNING") => LogLevel::Warning,
        Some("ERROR" | "SEVERE") => LogLevel::Error,
        Some("FATAL" | "FAILURE") => LogLevel::Critical,
        _ => return false,
    };
    line.at = line.at.or(seconds.checked_mul(1_000_000_000).map(Timestamp));
    line.host = Some(place);
    line.level = Some(level);
    line.news = level == LogLevel::Info;
    line.text = c.rest.trim_start();
    true
}

/// Parses `704.7s<tab>1387<tab>` of notebooks that Kaggle runs: seconds since the start, line number.
fn notebook(line: &mut ParsedLine<'_>) -> bool {
    let mut c = LineCursor::new(line.text);
    let clock = c.digits(7).is_some() && c.eat(".") && c.digits(3).is_some() && c.eat("s\t");
    if !clock || c.digits(9).is_none() || !c.eat("\t") {
        return false;
    }
    line.text = c.rest;
    true
}

/// Parses `134681 node-246 unix.hw state_change.unavailable 1077804742 1 ` of the event logs of Los Alamos: number,
/// node, component, event, seconds since 1970, flag. All of it is removed.
fn event_log(line: &mut ParsedLine<'_>) -> bool {
    if line.at.is_some() || line.host.is_some() {
        return false;
    }
    let mut c = LineCursor::new(line.text);
    let is_numbered = c.digits(9).is_some();
    let node = word(&mut c).filter(|node| node.bytes().any(|b| b.is_ascii_alphabetic()));
    let (Some(node), Some(_), Some(_), true) = (node, word(&mut c), word(&mut c), c.eat(" ")) else {
        return false;
    };
    let seconds = c.digits(11).filter(|digits| digits.len() == 10);
    let Some(seconds) = seconds.and_then(|digits| digits.parse::<i64>().ok()) else {
        return false;
    };
    if !is_numbered || word(&mut c).is_none_or(|flag| flag.parse::<i64>().is_err()) || !c.eat(" ") {
        return false;
    }
    line.at = seconds.checked_mul(1_000_000_000).map(Timestamp);
    line.host = Some(node);
    line.text = c.rest;
    true
}

/// Returns the next word after a single space.
fn word<'a>(c: &mut LineCursor<'a>) -> Option<&'a str> {
    c.eat(" ").then(|| c.run(|b| b != b' ')).flatten()
}

/// Parses a wall clock and the prefix after it: host and program of a system log, stream of a container log, level of
/// a logger.
fn clocked(line: &mut ParsedLine<'_>, clock: &LineClock) -> bool {
    let mut c = LineCursor::new(line.text);
    let bracket = c.eat("[");
    let Some(at) = moment::any(&mut c, clock) else {
        return false;
    };
    if bracket && !c.eat("]") {
        let Some(level) = ray_process(&mut c) else {
            return false;
        };
        line.level = line.level.or(Some(level));
    }
    // The first clock is the collector's (container log, system log), which all lines of the file share.
    line.at = line.at.or(at);
    c.spaces();
    if !bracket {
        let stamp = &line.text[..line.text.len() - c.rest.len()];
        container_stream(&mut c);
        system_log(&mut c, line, stamp);
    }
    if c.eat("- ") || c.eat("| ") || c.eat(": ") {
        c.spaces();
    }
    logger_level(&mut c, line);
    code_place(&mut c);
    line.text = c.rest;
    true
}

/// Parses ` E 329 331]` after the time in lines of Ray's own processes: level, process, thread (`src/ray/util/logging.cc`).
fn ray_process(cursor: &mut LineCursor<'_>) -> Option<LogLevel> {
    let mut c = *cursor;
    c.eat(" ").then_some(())?;
    let level = match c.run(|b| b.is_ascii_alphabetic())? {
        "T" | "D" => LogLevel::Debug,
        "I" => LogLevel::Info,
        "W" => LogLevel::Warning,
        "E" => LogLevel::Error,
        "C" | "F" => LogLevel::Critical,
        _ => return None,
    };
    for _ in 0..2 {
        c.eat(" ").then_some(())?;
        c.digits(10)?;
    }
    c.eat("]").then_some(())?;
    *cursor = c;
    Some(level)
}

/// Parses `module:function:12 - ` of loguru.
fn code_place(c: &mut LineCursor<'_>) {
    let mut next = *c;
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"_.<>".contains(&b);
    if next.run(is_name).is_some()
        && next.eat(":")
        && next.run(is_name).is_some()
        && next.eat(":")
        && next.digits(6).is_some()
        && next.eat(" - ")
    {
        *c = next;
    }
}

/// Parses `E0304 11:22:33.123456 1234 ` of glog and absl: level, month and day, thread. The code location after it
/// remains in the text, because some signatures match it.
fn glog(line: &mut ParsedLine<'_>, clock: &LineClock) -> bool {
    let mut c = LineCursor::new(line.text);
    let levels = [
        ("I", LogLevel::Info),
        ("W", LogLevel::Warning),
        ("E", LogLevel::Error),
        ("F", LogLevel::Critical),
    ];
    let Some((_, level)) = levels.into_iter().find(|(letter, _)| c.eat(letter)) else {
        return false;
    };
    let Some(at) = moment::month_day(&mut c, clock) else {
        return false;
    };
    if !c.spaces() {
        return false;
    }
    let mut thread = c;
    if thread.digits(10).is_some() && thread.spaces() {
        c = thread;
    }
    line.at = line.at.or(at);
    line.level = line.level.or(Some(level));
    line.text = c.rest;
    true
}

/// Parses `stdout F ` and `stderr P ` of container logs.
fn container_stream(c: &mut LineCursor<'_>) {
    let mut next = *c;
    if (next.eat("stdout ") || next.eat("stderr ")) && (next.eat("F ") || next.eat("P ")) {
        *c = next;
    }
}

/// Parses `host kernel: `, `host program[123]: ` of syslog and journal.
fn system_log<'a>(c: &mut LineCursor<'a>, line: &mut ParsedLine<'a>, stamp: &str) {
    let mut next = *c;
    let Some(host) = next.run(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) else {
        return;
    };
    if !next.eat(" ") {
        if host == "kernel" && next.eat(": ") {
            line.kernel = true;
            *c = next;
        }
        return;
    }
    let Some(program) = next.run(|b| b.is_ascii_alphanumeric() || b"._-/()".contains(&b)) else {
        return;
    };
    let mut bracketed = next;
    let has_process = bracketed.eat("[") && bracketed.digits(10).is_some() && bracketed.eat("]");
    if has_process {
        next = bracketed;
    }
    let words = SyslogWords {
        stamp,
        host,
        program,
        has_process,
    };
    if !next.eat(": ") || level_of(host).is_some() || !words.name_host() {
        return;
    }
    line.host = Some(host);
    line.kernel |= program == "kernel";
    // The kernel's own clock may follow as the next layer: `kernel: [  123.456789] text`. Other programs retain their
    // name in the text, because signatures match it: `slurmd: error: ...`.
    if program == "kernel" {
        *c = next;
    } else {
        let rest = c.rest.get(host.len() + 1..).unwrap_or(next.rest);
        *c = LineCursor::new(rest);
    }
}

/// Parses `ERROR - `, `[ERROR] `, `WARNING: ` of loggers. The word remains in the text if no separator follows it.
fn logger_level(c: &mut LineCursor<'_>, line: &mut ParsedLine<'_>) {
    let mut next = *c;
    let bracket = next.eat("[");
    let Some(word) = next.run(|b| b.is_ascii_alphabetic()) else {
        return;
    };
    let Some(level) = level_of(word) else { return };
    line.level = line.level.or(Some(level));
    next.spaces();
    let closed = if bracket {
        next.eat("]")
    } else {
        // The rank's own label may follow: `ERROR [rank3]: text`.
        let mut label = next;
        let is_label = label.eat("[rank") && label.digits(7).is_some() && label.eat("]");
        next.eat("- ") || next.eat("| ") || next.eat(": ") || is_label
    };
    if closed {
        next.spaces();
        *c = next;
    }
}

pub(super) fn level_of(word: &str) -> Option<LogLevel> {
    Some(match word {
        "DEBUG" | "debug" | "TRACE" => LogLevel::Debug,
        "INFO" | "info" | "NOTICE" => LogLevel::Info,
        "WARNING" | "warning" | "WARN" | "warn" => LogLevel::Warning,
        "ERROR" | "error" | "ERR" => LogLevel::Error,
        "CRITICAL" | "critical" | "FATAL" | "fatal" => LogLevel::Critical,
        _ => return None,
    })
}
