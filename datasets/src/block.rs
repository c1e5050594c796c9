//! Splitting of a byte stream into blocks of whole lines, with a limit on line length.

use std::io::{self, BufRead};

use memchr::{memchr, memchr_iter, memrchr};

/// Maximum length in bytes of a line, record or element; a longer one is reported and skipped.
pub const MAX_LINE: usize = 1 << 20;

/// Consecutive whole lines of a file; the last may lack a line end.
#[derive(Debug, Default)]
pub(crate) struct LineBlock {
    pub(crate) text: String,
    /// Start offsets of lines that are not UTF-8 and were read as Latin-1.
    pub(crate) latin: Vec<usize>,
}

impl LineBlock {
    fn new(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self {
                text,
                latin: Vec::new(),
            },
            Err(problem) => Self::mixed(problem.as_bytes()),
        }
    }

    /// Decodes lines of which at least one is not UTF-8, each separately.
    fn mixed(bytes: &[u8]) -> Self {
        let mut block = Self::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match std::str::from_utf8(line) {
                Ok(line) => block.text.push_str(line),
                Err(_) => {
                    block.latin.push(block.text.len());
                    block.text.extend(line.iter().map(|byte| char::from(*byte)));
                }
            }
        }
        block
    }

    /// Returns the part of the block from a line start on.
    pub(crate) fn from(mut self, at: usize) -> Self {
        let latin = self.latin.iter().filter(|start| **start >= at);
        Self {
            latin: latin.map(|start| start - at).collect(),
            text: self.text.split_off(at),
        }
    }

    /// Returns the number of line ends in the block.
    pub(crate) fn lines(&self) -> u64 {
        memchr_iter(b'\n', self.text.as_bytes()).count() as u64
    }
}

/// Next item of a stream.
pub(crate) enum NextBlock {
    Block(LineBlock),
    /// A line over the limit was skipped.
    TooLong,
    End,
    Broken(io::Error),
}

/// Reader of a stream in blocks.
pub(crate) struct BlockReader {
    reader: Box<dyn BufRead>,
    /// Start of the line that follows the last block.
    rest: Vec<u8>,
    /// True while an overlong line is skipped.
    skipping: bool,
    ended: bool,
    /// Error that ended the stream, reported after the data before it.
    broken: Option<io::Error>,
}

impl BlockReader {
    pub(crate) fn new(reader: Box<dyn BufRead>) -> Self {
        Self {
            reader,
            rest: Vec::new(),
            skipping: false,
            ended: false,
            broken: None,
        }
    }

    /// Returns the stream itself, for formats without lines.
    pub(crate) fn reader(&mut self) -> &mut dyn BufRead {
        &mut *self.reader
    }

    /// Returns true if the stream has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Marks the stream as ended.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns the next block of about `wanted` bytes.
    pub(crate) fn next(&mut self, wanted: usize) -> NextBlock {
        let mut bytes = std::mem::take(&mut self.rest);
        // Allocated once, with room for reads beyond it.
        bytes.reserve(wanted + wanted / 8);
        while !self.ended {
            if let Err(problem) = self.more(&mut bytes) {
                self.ended = true;
                self.broken = Some(problem);
            }
            if self.skipping {
                match memchr(b'\n', &bytes) {
                    Some(end) => {
                        self.rest = bytes.split_off(end + 1);
                        self.skipping = false;
                        return NextBlock::TooLong;
                    }
                    None if self.ended => return NextBlock::TooLong,
                    None => bytes.clear(),
                }
            } else if bytes.len() >= wanted {
                match memrchr(b'\n', &bytes) {
                    Some(end) => {
                        self.rest = bytes.split_off(end + 1);
                        return NextBlock::Block(LineBlock::new(bytes));
                    }
                    None => self.skipping = bytes.len() > MAX_LINE,
                }
            }
        }
        if !bytes.is_empty() {
            return NextBlock::Block(LineBlock::new(bytes));
        }
        self.broken.take().map_or(NextBlock::End, NextBlock::Broken)
    }

    /// Appends the buffered bytes of the stream.
    fn more(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let found = match self.reader.fill_buf() {
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        };
        let count = found.len();
        self.ended |= count == 0;
        bytes.extend_from_slice(found);
        self.reader.consume(count);
        Ok(())
    }
}
