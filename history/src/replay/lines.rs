//! Lines of a file, decompressed if necessary, with a limit on line length.

use std::io::{self, BufRead};
use std::path::Path;

use memchr::memchr;

/// Maximum bytes of a line that are read; the rest is skipped.
pub(super) const LINE_BYTES: usize = 1 << 20;

/// Reader of a file by lines.
pub(super) struct BoundedLines {
    reader: Box<dyn BufRead>,
    number: u64,
    cut: u64,
}

impl BoundedLines {
    /// Opens a file: plain, gzip, zip of one file, or Zstandard.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(rankguard_datasets::unpacked(path)?))
    }

    /// Reads lines from any reader.
    pub(super) fn of(reader: Box<dyn BufRead>) -> Self {
        Self {
            reader,
            number: 0,
            cut: 0,
        }
    }

    /// Returns buffered bytes without consuming them.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    /// Returns the number of the last line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of truncated lines.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Reads the next line without its end; returns false at the end of the file.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let mut any = false;
        let mut cut = false;
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            any = true;
            let end = memchr(b'\n', buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = LINE_BYTES - line.len();
            cut |= part.len() > room;
            line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number += u64::from(any);
        self.cut += u64::from(cut);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    #[test]
    fn a_line_far_past_its_bound_is_passed_over_in_a_megabyte() {
        let file = io::repeat(b'x').take(64 * LINE_BYTES as u64).chain(&b"\nlast\n"[..]);
        let mut lines = BoundedLines::of(Box::new(BufReader::with_capacity(1 << 20, file)));
        let mut line = Vec::new();
        assert!(lines.next(&mut line).expect("bytes"));
        assert_eq!((line.len(), lines.cut(), lines.number()), (LINE_BYTES, 1, 1));
        assert!(line.capacity() <= 4 * LINE_BYTES, "{}", line.capacity());
        assert!(lines.next(&mut line).expect("bytes") && line == b"last");
        assert!(!lines.next(&mut line).expect("the end"));
    }
}
