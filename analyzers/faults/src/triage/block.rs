//! Triage of blocks of many lines. Unremarkable text is never split into lines.
//!
//! Invariant: any division of a stream into blocks gives the observations that its lines give one by one.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memrchr};
use rankguard_model::Timestamp;

use super::{LogObservation, Triage, recent};
use crate::line::raw;
use crate::scan::BEYOND;

/// Bytes searched for odd bytes before they are scanned, so that both passes find them in the cache.
const STRIDE: usize = 8 * 1024;

impl Triage {
    /// Reads the next bytes of the stream, with the time they were read: any number of lines, the first and the last
    /// possibly incomplete. A line is read when its end arrives or [`Triage::flush`] is called; a line without an end
    /// is read in parts of a megabyte. Invalid UTF-8 is accepted.
    pub fn push_block(&mut self, block: &[u8], now: Timestamp) -> Vec<LogObservation> {
        let mut out = Vec::new();
        let mut rest = block;
        if !self.partial.is_empty() || self.partial_counted {
            let end = memchr(b'\n', rest);
            self.extend_partial(&rest[..end.unwrap_or(rest.len())], now);
            let Some(end) = end else { return out };
            self.end_partial(&mut out);
            rest = &rest[end + 1..];
        }
        let whole = memrchr(b'\n', rest).map_or(0, |at| at + 1);
        let (lines, partial) = rest.split_at(whole);
        self.lines(lines, now, &mut out);
        self.extend_partial(partial, now);
        out
    }

    /// Appends to an incomplete line. Memory is bounded: a part that is long enough is read at once.
    fn extend_partial(&mut self, bytes: &[u8], now: Timestamp) {
        self.now = now;
        let mut rest = bytes;
        while !rest.is_empty() {
            // One byte more than a part: only then is it known that the line continues.
            let room = (raw::PART_LIMIT + 1).saturating_sub(self.partial.len());
            let (taken, more) = rest.split_at(rest.len().min(room));
            self.partial.extend_from_slice(taken);
            rest = more;
            if self.partial.len() > raw::PART_LIMIT {
                self.count_partial();
                let line = std::mem::take(&mut self.partial);
                let end = raw::part_end(&line[..raw::PART_LIMIT]);
                self.part(&line[..end], now);
                self.partial.extend_from_slice(&line[end..]);
            }
        }
    }

    fn count_partial(&mut self) {
        if !self.partial_counted {
            self.line_no += 1;
            self.partial_counted = true;
        }
    }

    /// Reads the incomplete line, which is now complete.
    pub(super) fn end_partial(&mut self, out: &mut Vec<LogObservation>) {
        if self.partial.is_empty() && !self.partial_counted {
            return;
        }
        self.count_partial();
        let line = std::mem::take(&mut self.partial);
        self.part(&line, self.now);
        self.partial_counted = false;
        self.groups.take_ready(self.now, out);
    }

    /// Reads complete lines.
    fn lines(&mut self, lines: &[u8], now: Timestamp, out: &mut Vec<LogObservation>) {
        let mut at = 0;
        // Start of the lines that were only counted.
        let mut passed = 0;
        // Waiting groups may be ready; the first line checks them.
        let mut by_line = !self.groups.is_empty();
        while at < lines.len() {
            let next_no = self.line_no + 1;
            if by_line || !self.lanes.is_empty() || next_no <= self.followed_to {
                by_line = false;
                self.remember(&lines[passed..at]);
                let end = line_end(lines, at);
                self.line(&lines[at..end], now, out);
                at = end + 1;
                passed = at;
                continue;
            }
            let Some(line) = self.next_of_note(lines, at) else {
                self.line_no += count(&lines[at..]);
                break;
            };
            self.line_no += count(&lines[at..line.start]);
            self.remember(&lines[passed..line.start]);
            at = line.end + 1;
            passed = at;
            self.line_of_note(&lines[line], now, out);
        }
        self.remember(&lines[passed.min(lines.len())..]);
    }

    /// Returns the first line from `from` on that is notable by itself. `from` begins a line.
    fn next_of_note(&self, lines: &[u8], from: usize) -> Option<Range<usize>> {
        let line_at = |place: usize| {
            let start = memrchr(b'\n', &lines[from..place]).map_or(from, |newline| from + newline + 1);
            start..line_end(lines, place)
        };
        let mut at = from;
        // Last line that was examined and found unremarkable.
        let mut idle = from..from;
        while at < lines.len() {
            let end = lines.len().min(at + STRIDE);
            let mut first = self.first_odd(lines, at..lines.len().min(end + BEYOND), &line_at);
            let end = first.as_ref().map_or(end, |odd| odd.start);
            self.matcher.scanner().each(lines, at, end, &mut |_, inside| {
                if inside < from || idle.contains(&inside) {
                    return true;
                }
                // One word may hold the end of a line and the start of the next.
                if first.as_ref().is_some_and(|first| first.start <= inside) {
                    return true;
                }
                let line = line_at(inside);
                let raw = &lines[line.clone()];
                if self.is_worth_a_look(raw, raw::has_odd_bytes(raw)) {
                    first = Some(line);
                    return false;
                }
                idle = line;
                true
            });
            if first.is_some() {
                return first;
            }
            at += STRIDE;
        }
        None
    }

    /// Returns the first line with odd bytes in a stretch that is notable by itself.
    fn first_odd(
        &self,
        lines: &[u8],
        stretch: Range<usize>,
        line_at: &dyn Fn(usize) -> Range<usize>,
    ) -> Option<Range<usize>> {
        if !raw::has_odd_bytes(&lines[stretch.clone()]) {
            return None;
        }
        let mut at = stretch.start;
        while let Some(odd) = lines.get(at..stretch.end).and_then(raw::first_odd_byte) {
            let line = line_at(at + odd);
            if self.is_worth_a_look(&lines[line.clone()], true) {
                return Some(line);
            }
            at = line.end + 1;
        }
        None
    }

    /// Reads a complete line that is notable by itself.
    fn line_of_note(&mut self, raw: &[u8], now: Timestamp, out: &mut Vec<LogObservation>) {
        if raw.len() > raw::PART_LIMIT {
            return self.line(raw, now, out);
        }
        self.line_no += 1;
        self.now = now;
        self.read(raw, now);
        self.groups.take_ready(now, out);
    }

    /// Records the last of the counted lines as history; the last of them is line `line_no`.
    fn remember(&mut self, lines: &[u8]) {
        let Some(body) = lines.strip_suffix(b"\n") else { return };
        let from = memchr::memrchr_iter(b'\n', body)
            .nth(recent::KEPT - 1)
            .map_or(0, |at| at + 1);
        let mut kept = &body[from..];
        let mut line_no = self.line_no - count(kept);
        loop {
            let end = memchr(b'\n', kept);
            self.recent.remember(line_no, &kept[..end.unwrap_or(kept.len())]);
            let Some(end) = end else { return };
            kept = &kept[end + 1..];
            line_no += 1;
        }
    }
}

fn count(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// Returns the index of the newline that ends the line at `at`; every line has one.
fn line_end(lines: &[u8], at: usize) -> usize {
    memchr(b'\n', &lines[at..]).map_or(lines.len(), |more| at + more)
}
