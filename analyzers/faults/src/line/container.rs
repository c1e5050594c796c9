//! Lines as a container runtime or the journal of systemd stores them: one JSON object a line, with the program's line
//! inside.

use jiff::Timestamp;
use memchr::memmem;

use super::record;

/// Line in the form of other logs.
pub(super) enum DecodedLine {
    /// Line that a container runtime or the journal stored.
    Stored(String),
    /// Record of a structured logger.
    Record {
        /// Lines of the record, at least one.
        lines: String,
        /// Record in the form of other logs, if a container runtime or the journal stored it.
        stored: Option<String>,
    },
}

/// Returns a line of a container runtime, of the journal or of a structured logger in the form of other logs; none for
/// anything else.
pub(super) fn decoded(raw: &[u8]) -> Option<DecodedLine> {
    let stored = stored(raw);
    match (record::lines(stored.as_deref().map_or(raw, str::as_bytes)), stored) {
        (Some(lines), stored) => Some(DecodedLine::Record { lines, stored }),
        (None, Some(line)) => Some(DecodedLine::Stored(line)),
        (None, None) => None,
    }
}

/// Converts `{"log":"text\n","stream":"stderr","time":"2025-01-21T04:41:44.5Z"}` to the form of the other runtimes:
/// `2025-01-21T04:41:44.5Z stderr F text`. Returns none for anything else; a truncated line returns its remaining
/// text.
fn stored(raw: &[u8]) -> Option<String> {
    let Some(mut rest) = raw.strip_prefix(b"{\"log\":\"") else {
        let is_journal = raw.starts_with(b"{") && memmem::find(raw, b"\"__REALTIME_TIMESTAMP\"").is_some();
        return is_journal.then(|| journal(raw)).flatten();
    };
    let log = string(&mut rest);
    let mut stream = String::from("stdout");
    let mut time = String::new();
    while let Some(after) = rest.strip_prefix(b",\"") {
        rest = after;
        let name = string(&mut rest);
        let Some(after) = rest.strip_prefix(b":\"") else { break };
        rest = after;
        let value = string(&mut rest);
        match name.as_str() {
            "stream" => stream = value,
            "time" => time = value,
            _ => {}
        }
    }
    let log = log.trim_end_matches(['\n', '\r']);
    Some(if time.is_empty() {
        log.to_owned()
    } else {
        format!("{time} {stream} F {log}")
    })
}

/// Converts `{"__REALTIME_TIMESTAMP":"1783830601000000","_HOSTNAME":"n8","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"text"}` of
/// `journalctl -o json` to the form of a system log: `2026-07-12T04:30:01Z n8 kernel: text`. Returns none for anything
/// else.
fn journal(raw: &[u8]) -> Option<String> {
    let mut rest = raw.strip_prefix(b"{")?;
    let [mut micros, mut host, mut tag, mut pid, mut message] = [const { None }; 5];
    while let Some(after) = blanks(rest).strip_prefix(b"\"") {
        rest = after;
        let name = string(&mut rest);
        rest = blanks(blanks(rest).strip_prefix(b":")?);
        // Other values are numbers, null, and arrays of repeated fields or of the bytes of a binary message.
        let value = match rest.strip_prefix(b"\"") {
            Some(after) => {
                rest = after;
                Some(string(&mut rest))
            }
            None => {
                let end = rest.iter().position(|byte| b",]}".contains(byte)).unwrap_or(rest.len());
                let is_list = rest.first() == Some(&b'[');
                let close = rest.iter().position(|byte| *byte == b']').map(|at| at + 1);
                rest = &rest[close.filter(|_| is_list).unwrap_or(end)..];
                None
            }
        };
        match name.as_str() {
            "__REALTIME_TIMESTAMP" => micros = value,
            "_HOSTNAME" => host = value,
            "SYSLOG_IDENTIFIER" => tag = value,
            "_PID" | "SYSLOG_PID" => pid = pid.or(value),
            "MESSAGE" => message = value,
            _ => {}
        }
        rest = blanks(rest);
        rest = rest.strip_prefix(b",").unwrap_or(rest);
    }
    let at = Timestamp::from_microsecond(micros?.parse().ok()?).ok()?;
    let message = message?.trim_end_matches(['\n', '\r']).replace('\n', " ");
    let host = host.unwrap_or_else(|| "localhost".to_owned());
    let tag = tag.unwrap_or_else(|| "unknown".to_owned());
    Some(match pid.filter(|_| tag != "kernel") {
        Some(pid) => format!("{at} {host} {tag}[{pid}]: {message}"),
        None => format!("{at} {host} {tag}: {message}"),
    })
}

pub(super) fn blanks(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_start()
}

/// Reads the rest of a JSON string after its opening quote, including the closing quote.
pub(super) fn string(rest: &mut &[u8]) -> String {
    let mut out = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        *rest = after;
        match byte {
            b'"' => break,
            b'\\' => escape(rest, &mut out),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap_or_else(|bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned())
}

fn escape(rest: &mut &[u8], out: &mut Vec<u8>) {
    let Some((&kind, after)) = rest.split_first() else {
        return;
    };
    *rest = after;
    let plain = match kind {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' | b'f' => b' ',
        b'u' => {
            let mut c = unit(rest);
            if let Some(high @ 0xd800..=0xdbff) = c {
                // One half of a surrogate pair: the other half follows, or the text is broken here.
                let low = rest
                    .strip_prefix(b"\\u")
                    .and_then(|mut low| Some((unit(&mut low)?, low)));
                c = None;
                if let Some((low @ 0xdc00..=0xdfff, after)) = low {
                    *rest = after;
                    c = Some(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00));
                }
            }
            let c = c.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            return;
        }
        other => other,
    };
    out.push(plain);
}

fn unit(rest: &mut &[u8]) -> Option<u32> {
    let (digits, after) = rest.split_at_checked(4)?;
    let unit = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    *rest = after;
    Some(unit)
}
