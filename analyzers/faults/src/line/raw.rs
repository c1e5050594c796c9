//! Raw bytes of a log before they are text: odd bytes, states of a redrawn line, lines without end.

use std::borrow::Cow;

use memchr::{memchr, memrchr};

use super::limit::LINE_LIMIT;
use super::{clean, container};

/// A line without an end is read in parts of at most this many bytes, each as a line of its own with the same number.
pub(crate) const PART_LIMIT: usize = 1 << 20;
/// How far back from its limit a part looks for a good place to end.
const PART_SLACK: usize = 4096;
/// What two looks at a long line have in common, bytes: a message that one of them cuts stands whole in the other.
const OVERLAP: usize = 512;

/// Whether a line (or several) holds bytes that can hide a word: escape sequences and other control characters. A carriage
/// return is not one of them, since no word goes beyond it.
pub(crate) fn has_odd_bytes(bytes: &[u8]) -> bool {
    // No early end: the compiler makes it one comparison for many bytes.
    bytes
        .chunks(256)
        .any(|chunk| chunk.iter().fold(0, |odd, byte| odd | u8::from(is_odd(*byte))) != 0)
}

/// The first odd byte.
pub(crate) fn first_odd_byte(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| is_odd(*byte))
}

fn is_odd(byte: u8) -> bool {
    (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0x7f)
}

/// Where the first part of a line without an end is cut, for a start of [`PART_LIMIT`] bytes: behind the last redraw or
/// blank near its end, where there is one.
pub(crate) fn part_end(start: &[u8]) -> usize {
    let slack = start.len().saturating_sub(PART_SLACK);
    let near = &start[slack..];
    memrchr(b'\r', near)
        .or_else(|| memrchr(b' ', near))
        .map_or(start.len(), |at| slack + at + 1)
}

/// A look at a part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look<'a> {
    /// Cleaned text of at most about [`LINE_LIMIT`] bytes.
    pub(crate) text: Cow<'a, str>,
    /// What a person sees of the line in the end. Other looks are at states drawn over and at text beyond the limit: only a
    /// match makes them worth anything.
    pub(crate) shown: bool,
}

/// A line as the looks that cover it, in order.
pub(crate) fn looks(raw: &[u8], each: &mut dyn FnMut(Look<'_>)) {
    match container::decoded(raw) {
        Some(line) => states(line.as_bytes(), each),
        None => states(raw, each),
    }
}

fn states(raw: &[u8], each: &mut dyn FnMut(Look<'_>)) {
    let mut rest = trim_end(raw);
    loop {
        let (state, more) = match memchr(b'\r', rest) {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        windows(state, more.is_none(), each);
        match more {
            Some(more) => rest = more,
            None => return,
        }
    }
}

fn windows(state: &[u8], last: bool, each: &mut dyn FnMut(Look<'_>)) {
    let mut from = 0;
    loop {
        let mut to = char_start(state, state.len().min(from + LINE_LIMIT));
        let text = match std::str::from_utf8(&state[from..to]) {
            Ok(text) => clean::shown(text),
            Err(_) => {
                // What is no text grows to three bytes for one when it is replaced.
                to = char_start(state, to.min(from + LINE_LIMIT / 3));
                let text = String::from_utf8_lossy(&state[from..to]);
                Cow::Owned(clean::shown(&text).into_owned())
            }
        };
        each(Look {
            text,
            shown: last && from == 0,
        });
        if to >= state.len() {
            return;
        }
        from = char_start(state, to - OVERLAP);
    }
}

/// The last place not after `at` where a character may begin.
fn char_start(bytes: &[u8], at: usize) -> usize {
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|at| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80))
        .unwrap_or(at)
}

/// The last state of a line as it is shown, undecoded and uncut.
pub(crate) fn shown(raw: &[u8]) -> &[u8] {
    let raw = trim_end(raw);
    memrchr(b'\r', raw).map_or(raw, |at| &raw[at + 1..])
}

fn trim_end(raw: &[u8]) -> &[u8] {
    let end = raw
        .iter()
        .rposition(|byte| !matches!(byte, b'\n' | b'\r'))
        .map_or(0, |at| at + 1);
    &raw[..end]
}
