//! Reader of a file as lines, records or JSON elements of limited length, with decompression.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::ops::Range;
use std::path::Path;

use encoding_rs_io::DecodeReaderBytes;
use memchr::memchr;
use rankguard_files::{open_regular, within_ratio};
use sha2::{Digest, Sha256};

use crate::block::{BlockReader, LineBlock, MAX_LINE, NextBlock};
use crate::load::LoadState;
use crate::zip;

/// Block size of a read in bytes.
const BLOCK: usize = 1 << 18;

/// File that is being read.
pub(crate) struct InputFile {
    blocks: BlockReader,
    /// Blocks that were read ahead.
    ahead: VecDeque<LineBlock>,
    block: LineBlock,
    /// Offset of the next line in the block, and number of its Latin-1 lines already read.
    at: usize,
    latin: usize,
    line: u64,
    /// Lines that were put back, the last first.
    back: Vec<String>,
    /// Line that was put back and read again.
    text: String,
    /// Current JSON element, and true once the start of its array was read.
    buffer: Vec<u8>,
    in_array: bool,
    /// True if a record continues beyond the last line.
    torn: bool,
}

/// Consecutive lines: the block, the number of its line ends, and the number of the line before the first.
pub(crate) struct InputPart {
    pub(crate) block: LineBlock,
    pub(crate) lines: u64,
    pub(crate) before: u64,
}

/// Opens a file as text: decompressed if its first bytes identify gzip, a zip of one file, or Zstandard; converted to
/// UTF-8 from UTF-16 with a byte order mark, as spreadsheets write it.
pub fn unpacked(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut bytes = packed_or_not(path)?;
    let begins = bytes.fill_buf()?;
    Ok(
        if begins.starts_with(&[0xff, 0xfe]) || begins.starts_with(&[0xfe, 0xff]) {
            Box::new(BufReader::with_capacity(1 << 16, DecodeReaderBytes::new(bytes)))
        } else {
            bytes
        },
    )
}

fn packed_or_not(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = open_regular(path)?;
    let packed_bytes = file.metadata()?.len();
    let mut magic = Vec::new();
    (&mut file).take(4).read_to_end(&mut magic)?;
    file.rewind()?;
    if magic.starts_with(b"PK\x03\x04") {
        let text = within_ratio(zip::only_file(file)?, packed_bytes);
        return Ok(Box::new(BufReader::with_capacity(1 << 16, text)));
    }
    rankguard_files::unpacked(Box::new(BufReader::with_capacity(1 << 16, file)), Some(packed_bytes))
}

/// Returns the SHA-256 and the length in bytes of a file, without decompression.
pub(crate) fn digest(path: &Path) -> io::Result<(String, u64)> {
    let mut file = open_regular(path)?;
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut file, &mut hash)?;
    let hex = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((hex, bytes))
}

impl InputFile {
    pub(crate) fn new(reader: Box<dyn BufRead>) -> Self {
        Self {
            blocks: BlockReader::new(reader),
            ahead: VecDeque::new(),
            block: LineBlock::default(),
            at: 0,
            latin: 0,
            line: 0,
            back: Vec::new(),
            text: String::new(),
            buffer: Vec::new(),
            in_array: false,
            torn: false,
        }
    }

    /// Creates an input with the lines of one part.
    pub(crate) fn of(part: InputPart) -> Self {
        let mut input = Self::new(Box::new(io::empty()));
        input.line = part.before;
        input.ahead.push_back(part.block);
        input
    }

    /// Returns the next line without its end. A line that is not UTF-8 is reported and read as Latin-1.
    pub(crate) fn line(&mut self, load: &mut LoadState) -> Option<&str> {
        if let Some(line) = self.back.pop() {
            self.line += 1;
            load.at(self.line);
            self.text = line;
            return Some(&self.text);
        }
        let place = loop {
            let Some(place) = self.place() else {
                self.advance(load)?;
                continue;
            };
            self.line += 1;
            load.at(self.line);
            if self.block.latin.get(self.latin) == Some(&place.start) {
                self.latin += 1;
                load.report_kept_row("encoding", "", || "not UTF-8, read as Latin-1".to_owned());
            }
            if place.len() <= MAX_LINE {
                break place;
            }
            too_long(load);
        };
        let line = self.block.text[place].trim_end_matches(['\n', '\r']);
        Some(match self.line {
            1 => line.strip_prefix('\u{feff}').unwrap_or(line),
            _ => line,
        })
    }

    /// Moves to the next block; returns `None` at the end.
    fn advance(&mut self, load: &mut LoadState) -> Option<()> {
        let ahead = self.ahead.pop_front().map(NextBlock::Block);
        match ahead.unwrap_or_else(|| self.blocks.next(BLOCK)) {
            NextBlock::Block(block) => {
                self.block = block;
                self.at = 0;
                self.latin = 0;
                Some(())
            }
            other => self.report_read_event(other, load),
        }
    }

    /// Takes the next line of the block and returns its range.
    fn place(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let rest = &self.block.text.as_bytes()[start..];
        if rest.is_empty() {
            return None;
        }
        self.at += memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        Some(start..self.at)
    }

    /// Reports the event that came in place of lines; returns `None` at the end.
    pub(crate) fn report_read_event(&mut self, next: NextBlock, load: &mut LoadState) -> Option<()> {
        match next {
            NextBlock::TooLong => {
                self.line += 1;
                load.at(self.line);
                too_long(load);
                Some(())
            }
            NextBlock::Broken(problem) => {
                load.cut_short(&problem);
                None
            }
            NextBlock::Block(_) | NextBlock::End => None,
        }
    }

    /// Returns the next `count` parts of about `bytes` bytes each, and the event that came in place of further ones.
    /// Lines that were put back are in none.
    pub(crate) fn parts(&mut self, count: usize, bytes: usize) -> (Vec<InputPart>, Option<NextBlock>) {
        let mut parts = Vec::new();
        let mut take = |block: LineBlock| {
            let before = self.line;
            let lines = block.lines();
            self.line += lines;
            parts.push(InputPart { block, lines, before });
        };
        let rest = std::mem::take(&mut self.block).from(self.at);
        self.at = 0;
        self.latin = 0;
        let ahead = std::iter::once(rest).chain(self.ahead.drain(..));
        ahead.filter(|block| !block.text.is_empty()).for_each(&mut take);
        for _ in 0..count {
            match self.blocks.next(bytes) {
                NextBlock::Block(block) => take(block),
                other => return (parts, Some(other)),
            }
        }
        (parts, None)
    }

    /// Puts back the parts that were taken last.
    pub(crate) fn untake(&mut self, parts: impl IntoIterator<Item = InputPart>) {
        let mut parts = parts.into_iter().peekable();
        if let Some(first) = parts.peek() {
            self.line = first.before;
        }
        self.ahead.extend(parts.map(|part| part.block));
    }

    /// Returns the lines as a block, and true if a record continues beyond them.
    pub(crate) fn into_block(self) -> (LineBlock, bool) {
        (self.block, self.torn)
    }

    /// Marks that a record continues beyond the last line.
    pub(crate) fn tear(&mut self) {
        self.torn = true;
    }

    /// Puts back the last lines that were read, in reading order.
    pub(crate) fn unread(&mut self, lines: Vec<String>) {
        self.line -= lines.len() as u64;
        self.back.extend(lines.into_iter().rev());
    }

    /// Returns the number of the last line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.line
    }

    /// Reads the rest of the file if it is at most `most` bytes, for documents that cannot be read in pieces.
    pub(crate) fn whole(&mut self, most: usize, load: &mut LoadState) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        load.at(1);
        match self.blocks.reader().take(most as u64 + 1).read_to_end(&mut bytes) {
            Err(problem) => {
                load.cut_short(&problem);
                None
            }
            Ok(_) if bytes.len() > most => {
                load.lose("limit", "", || format!("longer than {most} bytes, passed over"));
                None
            }
            Ok(_) => Some(bytes),
        }
    }

    /// Returns the next element of the file's JSON array as bytes. An element over the limit is skipped.
    pub(crate) fn element(&mut self, load: &mut LoadState) -> Option<&[u8]> {
        loop {
            match self.element_step(load) {
                Ok(Some(true)) => return Some(&self.buffer),
                Ok(Some(false)) => {
                    load.read_row();
                    load.lose("line-too-long", "", || {
                        format!("element longer than {MAX_LINE} bytes, passed over")
                    });
                }
                Ok(None) => return None,
                Err(problem) => {
                    self.blocks.end();
                    load.cut_short(&problem);
                    return None;
                }
            }
        }
    }

    /// Reads one element. Some(true): it is in the buffer; Some(false): it was too long; None: the array has ended.
    fn element_step(&mut self, load: &mut LoadState) -> io::Result<Option<bool>> {
        self.buffer.clear();
        let mut depth = 0_u32;
        let mut in_text = false;
        let mut escaped = false;
        let mut long = false;
        let mut begun = false;
        while !self.blocks.has_ended() {
            let bytes = self.blocks.reader().fill_buf()?;
            let Some(&byte) = bytes.first() else {
                self.blocks.end();
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the array is not closed"));
            };
            self.blocks.reader().consume(1);
            if byte == b'\n' {
                self.line += 1;
            }
            if !begun {
                match byte {
                    b'[' if !self.in_array => {
                        self.in_array = true;
                        self.line = self.line.max(1);
                        continue;
                    }
                    b']' => {
                        self.blocks.end();
                        return Ok(None);
                    }
                    b',' | b' ' | b'\n' | b'\r' | b'\t' => continue,
                    _ => {
                        begun = true;
                        load.at(self.line.max(1));
                    }
                }
            }
            if in_text {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' => escaped = true,
                    b'"' => in_text = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => in_text = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth == 0 => {
                        self.blocks.end();
                        return Ok(Some(!long));
                    }
                    b'}' | b']' => depth -= 1,
                    b',' if depth == 0 => return Ok(Some(!long)),
                    _ => {}
                }
            }
            if long || self.buffer.len() >= MAX_LINE {
                long = true;
                self.buffer.clear();
            } else {
                self.buffer.push(byte);
            }
            if depth == 0 && !in_text && matches!(byte, b'}' | b']') {
                return Ok(Some(!long));
            }
        }
        Ok(None)
    }
}

/// Reports that the current line is skipped.
fn too_long(load: &mut LoadState) {
    load.read_row();
    load.lose("line-too-long", "", || {
        format!("longer than {MAX_LINE} bytes, passed over")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::FileRead;

    /// Reader of a number of bytes without a line end.
    struct Endless(u64);

    impl Read for Endless {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = out.len().min(usize::try_from(self.0).unwrap_or(usize::MAX));
            out[..count].fill(b'x');
            self.0 -= count as u64;
            Ok(count)
        }
    }

    #[test]
    fn a_line_of_ten_gigabytes_is_a_problem_and_takes_a_megabyte() {
        let file = (&b"first\n"[..]).chain(Endless(10 << 30)).chain(&b"\nlast\n"[..]);
        let mut input = InputFile::new(Box::new(BufReader::with_capacity(1 << 20, file)));
        let mut load = LoadState::default();
        load.begin(FileRead {
            path: "file".to_owned(),
            role: "lines",
            sha256: String::new(),
            bytes: 0,
            rows_read: 0,
            rows_skipped: 0,
        });
        assert_eq!(input.line(&mut load), Some("first"));
        assert_eq!(input.line(&mut load), Some("last"));
        assert_eq!(input.line(&mut load), None);
        let group = &load.problems.kinds["line-too-long"];
        assert_eq!((group.count, group.rows_lost, group.first[0].line), (1, 1, 2));
        assert!(
            input.block.text.capacity() <= 4 * MAX_LINE,
            "{}",
            input.block.text.capacity()
        );
    }
}
