//! Splits bytes into lines.
//!
//! A line is emitted when its newline has been read. Bytes that are not UTF-8 are read lossily, and lines longer than
//! [`LINE_BYTES_MAX`] are cut (RG-11).

use std::time::{Duration, Instant};

/// Longest line that is retained whole, bytes.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Idle time after which an unfinished last line is emitted: its writer probably died in the middle of the line.
const IDLE: Duration = Duration::from_millis(500);

/// Buffer of the line that is not emitted yet.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    /// Bytes of a line without its newline.
    partial: Vec<u8>,
    /// Time at which bytes were last added.
    grown: Option<Instant>,
    /// True while the rest of an over-long line is skipped.
    skipping: bool,
}

impl LineBuffer {
    /// Returns the number of buffered bytes.
    pub(super) fn held(&self) -> u64 {
        self.partial.len() as u64
    }

    /// True if an unfinished line has not grown for [`IDLE`].
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.grown
            .is_some_and(|grown| now.saturating_duration_since(grown) >= IDLE)
    }

    /// Takes bytes that were read at `offset`. Calls `seen` for each completed line, with its text without the newline
    /// and the offset of its first byte.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut offset: u64, now: Instant, mut seen: impl FnMut(String, u64)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.collect(&bytes[..end], &mut offset);
            if !std::mem::take(&mut self.skipping) {
                let (text, begins) = self.line(offset);
                seen(text, begins);
            }
            offset += 1;
            bytes = &bytes[end + 1..];
        }
        self.collect(bytes, &mut offset);
        if self.partial.len() > LINE_BYTES_MAX {
            let (text, begins) = self.line(offset);
            seen(text, begins);
            self.skipping = true;
        }
        self.grown = (!self.partial.is_empty()).then_some(now);
    }

    /// Returns the unfinished line, if any, with the offset of its first byte; `offset` is the offset of its end.
    pub(super) fn flush(&mut self, offset: u64) -> Option<(String, u64)> {
        self.grown = None;
        (!self.partial.is_empty()).then(|| self.line(offset))
    }

    fn collect(&mut self, bytes: &[u8], offset: &mut u64) {
        if !self.skipping {
            self.partial.extend_from_slice(bytes);
        }
        *offset += bytes.len() as u64;
    }

    fn line(&mut self, offset: u64) -> (String, u64) {
        let begins = offset - self.held();
        let mut line = std::mem::take(&mut self.partial);
        line.truncate(LINE_BYTES_MAX);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        (String::from_utf8_lossy(&line).into_owned(), begins)
    }
}
