//! Output of the program: data to standard output, everything else to standard error. No other module prints.
//!
//! Foreign text cannot act on the terminal: control and bidirectional characters are escaped here, in text by
//! [`rankguard_model::printable`], in JSON by `\u` escapes, which lose nothing. Only [`bytes`] writes its input
//! unchanged.
//!
//! A closed pipe (`rankguard cases | head`) is no error: further output is dropped and [`finish`] reports nothing. Any
//! other problem with standard output is remembered and reported once, by [`finish`].

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rankguard_model::{is_hidden, printable, printable_lines};
use serde::Serialize;

use crate::times::WithTimes;
use crate::width::{terminal_width, wrap_page};

static CLOSED: AtomicBool = AtomicBool::new(false);
static PROBLEM: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes one line of data; line ends in it are escaped.
pub fn line(text: &str) {
    write(&[printable(text).as_bytes(), b"\n"]);
}

/// Writes text with its own line ends.
pub fn text(text: &str) {
    write(&[printable_lines(text).as_bytes()]);
}

/// Writes a page of facts, wrapped to the width of the terminal if there is one.
pub fn page(text: &str) {
    match terminal_width() {
        Some(width) => self::text(&wrap_page(&printable_lines(text), width)),
        None => self::text(text),
    }
}

/// Writes encoded data unchanged.
pub fn bytes(bytes: &[u8]) {
    write(&[bytes]);
}

/// Writes an indented JSON document, with times as RFC 3339.
pub fn json<T: Serialize + ?Sized>(document: &T) {
    match json_text(document) {
        Ok(json) => text(&format!("{json}\n")),
        Err(problem) => remember(problem.into()),
    }
}

/// Writes a JSON document on one line, with times as RFC 3339.
pub fn json_line<T: Serialize + ?Sized>(document: &T) {
    match json_line_text(document) {
        Ok(json) => line(&json),
        Err(problem) => remember(problem.into()),
    }
}

/// Returns the indented JSON of a document as [`json`] writes it.
pub fn json_text<T: Serialize + ?Sized>(document: &T) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&WithTimes(document)).map(|json| visible_json(&json).into_owned())
}

/// Returns the JSON of a document on one line as [`json_line`] writes it.
pub fn json_line_text<T: Serialize + ?Sized>(document: &T) -> serde_json::Result<String> {
    serde_json::to_string(&WithTimes(document)).map(|json| visible_json(&json).into_owned())
}

/// Escapes hidden characters of JSON text as `\u`: the same document. Outside strings JSON has no hidden characters
/// except line ends.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_hidden(c) && c != '\n';
    if !json.chars().any(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_escaped(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Writes one line to standard error; line ends in it are escaped. A closed standard error is ignored.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Writes several lines to standard error.
pub fn notes(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(text));
}

/// Flushes standard output; returns the first error that it raised.
pub fn finish() -> io::Result<()> {
    if !CLOSED.load(Ordering::Relaxed)
        && let Err(problem) = io::stdout().lock().flush()
    {
        remember(problem);
    }
    match PROBLEM.lock().ok().and_then(|mut problem| problem.take()) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

fn write(parts: &[&[u8]]) {
    if CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let mut stdout = io::stdout().lock();
    if let Err(problem) = parts.iter().try_for_each(|part| stdout.write_all(part)) {
        remember(problem);
    }
}

fn remember(problem: io::Error) {
    CLOSED.store(true, Ordering::Relaxed);
    if problem.kind() == ErrorKind::BrokenPipe {
        return;
    }
    if let Ok(mut first) = PROBLEM.lock() {
        first.get_or_insert(problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_visible_and_loses_nothing_rg_11() {
        let name = "a\u{1b}\u{9b}\u{202e}\u{e0041}\nb";
        let json = serde_json::to_string_pretty(&[name]).expect("a document");
        let visible = visible_json(&json);
        assert!(!visible.chars().any(|c| is_hidden(c) && c != '\n'), "{visible}");
        let back: Vec<String> = serde_json::from_str(&visible).expect("a document");
        assert_eq!(back, [name]);
    }
}
