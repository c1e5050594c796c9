//! A stream of bytes as blocks of whole lines, none of them held beyond its bound.

use std::io::{self, BufRead};

use memchr::{memchr, memchr_iter, memrchr};

/// The longest line, record or element that is held; a longer one is a problem and is passed over.
pub const MAX_LINE: usize = 1 << 20;

/// Whole lines that follow each other in a file; the last may have no end.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) text: String,
    /// Where lines begin that were not UTF-8 and are read as Latin-1.
    pub(crate) latin: Vec<usize>,
}

impl Block {
    fn new(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self {
                text,
                latin: Vec::new(),
            },
            Err(problem) => Self::mixed(problem.as_bytes()),
        }
    }

    /// Lines of which at least one is not UTF-8: each by itself.
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

    /// What follows a line's beginning.
    pub(crate) fn from(mut self, at: usize) -> Self {
        let latin = self.latin.iter().filter(|start| **start >= at);
        Self {
            latin: latin.map(|start| start - at).collect(),
            text: self.text.split_off(at),
        }
    }

    /// How many lines end in it.
    pub(crate) fn lines(&self) -> u64 {
        memchr_iter(b'\n', self.text.as_bytes()).count() as u64
    }
}

/// What comes next of a stream.
pub(crate) enum Next {
    Block(Block),
    /// A line that is too long was passed over.
    TooLong,
    End,
    Broken(io::Error),
}

/// A stream on its way into blocks.
pub(crate) struct Blocks {
    reader: Box<dyn BufRead>,
    /// The beginning of the line that the last block ended before.
    rest: Vec<u8>,
    /// The line at hand is too long.
    skipping: bool,
    ended: bool,
    /// What the stream broke off with, told after what came before it.
    broken: Option<io::Error>,
}

impl Blocks {
    pub(crate) fn new(reader: Box<dyn BufRead>) -> Self {
        Self {
            reader,
            rest: Vec::new(),
            skipping: false,
            ended: false,
            broken: None,
        }
    }

    /// The stream itself, for whoever reads no lines of it.
    pub(crate) fn reader(&mut self) -> &mut dyn BufRead {
        &mut *self.reader
    }

    /// Whether nothing comes any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Nothing comes any more.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// The next block of about so many bytes.
    pub(crate) fn next(&mut self, wanted: usize) -> Next {
        let mut bytes = std::mem::take(&mut self.rest);
        // Room at once, for what is read beyond it, too.
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
                        return Next::TooLong;
                    }
                    None if self.ended => return Next::TooLong,
                    None => bytes.clear(),
                }
            } else if bytes.len() >= wanted {
                match memrchr(b'\n', &bytes) {
                    Some(end) => {
                        self.rest = bytes.split_off(end + 1);
                        return Next::Block(Block::new(bytes));
                    }
                    None => self.skipping = bytes.len() > MAX_LINE,
                }
            }
        }
        if !bytes.is_empty() {
            return Next::Block(Block::new(bytes));
        }
        self.broken.take().map_or(Next::End, Next::Broken)
    }

    /// Takes what is at hand of the stream.
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
