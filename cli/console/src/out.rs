//! The two ways out: data to standard output, everything else to standard error. Nothing else in this program prints.
//!
//! A reader that goes away (`rankguard cases | head`) is no error: what follows is dropped and [`finish`] says so to
//! nobody. Any other problem with standard output is remembered and reported once, at the end.

use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

static CLOSED: AtomicBool = AtomicBool::new(false);
static PROBLEM: Mutex<Option<io::Error>> = Mutex::new(None);

/// One line of data.
pub fn line(text: &str) {
    write(&[text.as_bytes(), b"\n"]);
}

/// Data that brings its own line ends.
pub fn text(text: &str) {
    write(&[text.as_bytes()]);
}

/// Data that is already encoded.
pub fn bytes(bytes: &[u8]) {
    write(&[bytes]);
}

/// A document for machines, indented.
pub fn json<T: Serialize + ?Sized>(document: &T) {
    match serde_json::to_string_pretty(document) {
        Ok(text) => line(&text),
        Err(problem) => remember(problem.into()),
    }
}

/// A document for machines on one line.
pub fn json_line<T: Serialize + ?Sized>(document: &T) {
    match serde_json::to_string(document) {
        Ok(text) => line(&text),
        Err(problem) => remember(problem.into()),
    }
}

/// One line for the person who watches. Standard error may be closed; there is nobody left to tell.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Hands over what is still buffered; the first problem there was with standard output.
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
