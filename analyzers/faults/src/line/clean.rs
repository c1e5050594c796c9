//! Removes terminal noise from a line: colour codes, redrawn progress bars, control characters, excess length.

use std::borrow::Cow;

use super::container::{self, DecodedLine};
use super::limit::LINE_LIMIT;

/// Returns the line as a terminal would finally show it: without escape sequences and control characters, only the
/// last state of a redrawn line, cut at [`LINE_LIMIT`] bytes, and extracted from the JSON of a container runtime or a
/// logger; of a record with several lines, the first. Borrows if nothing is removed.
pub fn clean(raw: &str) -> Cow<'_, str> {
    match container::decoded(raw.as_bytes()) {
        Some(DecodedLine::Stored(line)) => Cow::Owned(shown(&line).into_owned()),
        Some(DecodedLine::Record { lines, .. }) => {
            Cow::Owned(shown(lines.lines().next().unwrap_or_default()).into_owned())
        }
        None => shown(raw),
    }
}

pub(super) fn shown(raw: &str) -> Cow<'_, str> {
    let mut text = raw.trim_end_matches(['\n', '\r']);
    if let Some(last) = text.rfind('\r') {
        text = &text[last + 1..];
    }
    let text = truncate(text, LINE_LIMIT);
    if !text.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Cow::Borrowed(text.trim_end());
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                // CSI: parameters, then one final byte in @..~
                Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                // OSC: until BEL or ST
                Some(']') => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
                _ => {}
            },
            '\t' => out.push('\t'),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.truncate(out.trim_end().len());
    Cow::Owned(out)
}

/// Returns the longest prefix of `text` that fits into `limit` bytes.
fn truncate(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
