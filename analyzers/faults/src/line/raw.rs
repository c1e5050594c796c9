//! Raw bytes of a log before decoding: control bytes, states of a redrawn line, lines without end.

use std::borrow::Cow;

use memchr::{memchr, memrchr};

use super::clean;
use super::container::{self, DecodedLine};
use super::limit::LINE_LIMIT;

/// Maximum size of a part, bytes. A line without an end is read in parts, each as a line of its own with the same
/// number.
pub(crate) const PART_LIMIT: usize = 1 << 20;
/// Distance before the limit in which a part is searched for a good place to end, bytes.
const PART_SLACK: usize = 4096;
/// Overlap of two views of a long line, bytes: a message that one view cuts is complete in the other.
const OVERLAP: usize = 512;

/// Returns true if the bytes hold control characters that can hide a word, such as escape sequences. A carriage
/// return does not count, because no word continues beyond it.
pub(crate) fn has_odd_bytes(bytes: &[u8]) -> bool {
    // No early exit, so that the compiler vectorises the comparison.
    bytes
        .chunks(256)
        .any(|chunk| chunk.iter().fold(0, |odd, byte| odd | u8::from(is_odd(*byte))) != 0)
}

/// Returns the index of the first odd byte.
pub(crate) fn first_odd_byte(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| is_odd(*byte))
}

fn is_odd(byte: u8) -> bool {
    (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0x7f)
}

/// Returns the end of the first part of a line without an end, given its first [`PART_LIMIT`] bytes: after the last
/// carriage return near the end, else after the last blank, else the whole start.
pub(crate) fn part_end(start: &[u8]) -> usize {
    let slack = start.len().saturating_sub(PART_SLACK);
    let near = &start[slack..];
    memrchr(b'\r', near)
        .or_else(|| memrchr(b' ', near))
        .map_or(start.len(), |at| slack + at + 1)
}

/// View of a part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineView<'a> {
    /// Cleaned text of at most about [`LINE_LIMIT`] bytes.
    pub(crate) text: Cow<'a, str>,
    /// Part of the line that it shows.
    pub(crate) part: LinePart,
}

/// Part of a line that a view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinePart {
    /// Final visible state of the line, or a line of a record of a logger.
    Shown,
    /// Overwritten state, or text beyond the limit, which counts only if a signature matches.
    Hidden,
    /// Record of a logger as it is stored, which counts only if a signature matches and none matched its lines.
    Record,
}

/// Calls `each` with the views that cover a line, in order.
pub(crate) fn for_each_view(raw: &[u8], each: &mut dyn FnMut(LineView<'_>)) {
    match container::decoded(raw) {
        None => states(raw, LinePart::Shown, each),
        Some(DecodedLine::Stored(line)) => states(line.as_bytes(), LinePart::Shown, each),
        Some(DecodedLine::Record { lines, stored }) => {
            for line in lines.lines() {
                states(line.as_bytes(), LinePart::Shown, each);
            }
            states(stored.as_deref().map_or(raw, str::as_bytes), LinePart::Record, each);
        }
    }
}

fn states(raw: &[u8], part: LinePart, each: &mut dyn FnMut(LineView<'_>)) {
    let mut rest = trim_end(raw);
    loop {
        let (state, more) = match memchr(b'\r', rest) {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let is_final = more.is_none() || part == LinePart::Record;
        windows(state, if is_final { part } else { LinePart::Hidden }, each);
        match more {
            Some(more) => rest = more,
            None => return,
        }
    }
}

fn windows(state: &[u8], part: LinePart, each: &mut dyn FnMut(LineView<'_>)) {
    let mut from = 0;
    loop {
        let mut to = char_start(state, state.len().min(from + LINE_LIMIT));
        let text = match std::str::from_utf8(&state[from..to]) {
            Ok(text) => clean::shown(text),
            Err(_) => {
                // Each invalid byte grows to three bytes when it is replaced.
                to = char_start(state, to.min(from + LINE_LIMIT / 3));
                let text = String::from_utf8_lossy(&state[from..to]);
                Cow::Owned(clean::shown(&text).into_owned())
            }
        };
        each(LineView {
            text,
            part: if from == 0 || part == LinePart::Record {
                part
            } else {
                LinePart::Hidden
            },
        });
        if to >= state.len() {
            return;
        }
        from = char_start(state, to - OVERLAP);
    }
}

/// Returns the last index not after `at` at which a character may begin.
fn char_start(bytes: &[u8], at: usize) -> usize {
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|at| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80))
        .unwrap_or(at)
}

/// Returns the last state of a redrawn line, undecoded and uncut.
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
