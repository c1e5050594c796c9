//! Bytes cut into lines.
//!
//! A line is handed out when its newline has come. Bytes that are not text are read lossily, lines beyond [`LINE_BYTES_MAX`]
//! are cut (RG-11).

use std::time::{Duration, Instant};

/// Longest line that is kept whole, bytes.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;

/// A last line without a newline is handed out when nothing was added to it for this long: a program that died in the
/// middle of a line has said what it had to say.
const IDLE: Duration = Duration::from_millis(500);

/// What has been read of a line that is not handed out yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Bytes of a line whose newline has not come.
    partial: Vec<u8>,
    /// When bytes were last added to it.
    grown: Option<Instant>,
    /// Whether the rest of an over-long line is being skipped.
    skipping: bool,
}

impl Lines {
    /// Bytes that were taken and not handed out.
    pub(super) fn held(&self) -> u64 {
        self.partial.len() as u64
    }

    /// Whether an unfinished line has not grown for a while.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.grown
            .is_some_and(|grown| now.saturating_duration_since(grown) >= IDLE)
    }

    /// Takes bytes that were just read from this offset on; gives each line that they end, without its newline, and the
    /// offset at which it begins.
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

    /// The unfinished line, where there is one, and the offset at which it begins; `offset` is that of its end.
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
