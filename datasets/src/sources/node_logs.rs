//! Kernel and fabric manager logs of GPU nodes: dmesg in three styles, /dev/kmsg, pstore, fabricmanager.log.

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "node-logs",
    title: "GPU node logs: dmesg, kmsg, pstore, fabric manager (gpud's test data among them)",
    licence: "one's own; gpud's samples: Apache-2.0",
    citation: "for the samples: github.com/leptonai/gpud",
    home: "dmesg, /dev/kmsg, /sys/fs/pstore, /var/log/fabricmanager.log; github.com/leptonai/gpud, testdata",
    clock: "as each line says: an instant, or a wall clock counted as UTC; time since boot stands in x_uptime_s and time is null",
    traps: &[
        "one fault gives many lines: Xid 13 repeats for every SM",
        "pstore keeps the last part first, and a joined dmesg beside its parts holds the same lines again",
    ],
    role: |head| {
        let first = head.text.lines().find(|line| !line.trim().is_empty())?;
        let panic = head.text.contains("Panic#") && head.text.contains("<6>[");
        (panic || parse(first).is_some()).then_some("log lines")
    },
    read,
    ..SourceFormat::PLAIN
};

/// Parts of a line.
struct LogLineParts<'a> {
    time: Option<f64>,
    uptime: Option<f64>,
    severity: &'a str,
    message: &'a str,
}

/// Returns the name of a kernel log level.
fn level(number: &str) -> Option<&'static str> {
    const NAMES: [&str; 8] = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];
    let number: usize = number.parse().ok()?;
    // The facility is above the lowest three bits.
    (number < 1024).then(|| NAMES[number & 7])
}

fn parse(line: &str) -> Option<LogLineParts<'_>> {
    decoded(line).or_else(|| kmsg(line)).or_else(|| bracketed(line))
}

/// Parses `kern  :warn  : 2025-01-21T04:41:44,283302+00:00 message`.
fn decoded(line: &str) -> Option<LogLineParts<'_>> {
    let mut parts = line.splitn(3, ':');
    let facility = parts.next()?;
    let severity = parts.next()?;
    let rest = parts.next()?;
    let known = matches!(facility.trim(), "kern" | "user" | "daemon" | "syslog" | "auth");
    let (stamp, message) = rest.trim_start().split_once(' ')?;
    let time = known.then(|| time::iso(stamp)).flatten()?.0;
    Some(LogLineParts {
        time: Some(time),
        uptime: None,
        severity: severity.trim(),
        message,
    })
}

/// Parses `6,3964,206764307,-;message`.
fn kmsg(line: &str) -> Option<LogLineParts<'_>> {
    let (front, message) = line.split_once(';')?;
    let mut fields = front.split(',');
    let severity = level(fields.next()?)?;
    fields.next()?.parse::<u64>().ok()?;
    let micros: u64 = fields.next()?.parse().ok()?;
    fields.next()?;
    Some(LogLineParts {
        time: None,
        uptime: Some(micros as f64 / 1e6),
        severity,
        message,
    })
}

/// Parses `<6>[   13.717163] message`, `[Sun Feb 23 16:24:18 2025] message`,
/// `[Feb 25 2025 13:59:45] [INFO] [tid 1] message`.
fn bracketed(line: &str) -> Option<LogLineParts<'_>> {
    let (severity, rest) = match line.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((number, rest)) => (level(number)?, rest),
        None => ("", line),
    };
    let (inside, message) = rest.strip_prefix('[')?.split_once(']')?;
    let message = message.trim_start();
    if let Ok(uptime) = inside.trim().parse::<f64>() {
        return Some(LogLineParts {
            time: None,
            uptime: Some(uptime),
            severity,
            message,
        });
    }
    let time = Some(time::words(inside)?);
    // Web servers write `[time] [level]` too, with the day of the week first.
    let fabric = message.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (severity, message) = match fabric {
        Some((word, rest))
            if inside.as_bytes().get(3) == Some(&b' ') && word.bytes().all(|byte| byte.is_ascii_uppercase()) =>
        {
            (word, rest.trim_start())
        }
        Some((word, _)) if word.bytes().all(|byte| byte.is_ascii_lowercase()) => return None,
        _ => (severity, message),
    };
    Some(LogLineParts {
        time,
        uptime: None,
        severity,
        message,
    })
}

/// Returns the code of `NVRM: Xid (PCI:0000:9b:00): 119, ...`.
fn xid(message: &str) -> Option<u32> {
    let rest = message.split_once("NVRM: Xid (")?.1.split_once("): ")?.1;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn read(_: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let file = load.file().to_owned();
    while let Some(line) = input.line(load) {
        if line.trim().is_empty() {
            continue;
        }
        load.read_row();
        let parts = parse(line).unwrap_or(LogLineParts {
            time: None,
            uptime: None,
            severity: "",
            message: line,
        });
        if parts.time.is_none() && parts.uptime.is_none() {
            load.report_kept_row("no-time", "time", || {
                "no time, it goes on from the line before; kept with null".to_owned()
            });
        }
        let label = xid(parts.message).map(|code| format!("Xid {code}")).unwrap_or_default();
        load.in_order(TableKind::Events, parts.time);
        load.row(TableKind::Events)
            .num("time", parts.time)
            .text("label", &label)
            .text("severity", parts.severity)
            .text("message", parts.message)
            .num("x_uptime_s", parts.uptime)
            .text("x_file", &file);
    }
}
