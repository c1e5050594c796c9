//! A file as bounded lines, records or JSON elements, unpacked on the way.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use memchr::memchr;
use sha2::{Digest, Sha256};

use crate::load::Load;
use crate::{zip, zst};

/// The longest line, record or element that is held; a longer one is a problem and is passed over.
pub const MAX_LINE: usize = 1 << 20;

/// A file that is being read.
pub(crate) struct Input {
    reader: Box<dyn BufRead>,
    line: u64,
    buffer: Vec<u8>,
    text: String,
    /// Lines that were looked at and not taken, the last first.
    back: Vec<String>,
    ended: bool,
}

/// What one step of the bounded reader found.
enum Step {
    Line,
    TooLong,
    End,
}

/// The bytes of a file, unpacked where it is a gzip, a zip of one file, or Zstandard; told by its first bytes.
pub fn unpacked(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    (&mut file).take(4).read_to_end(&mut magic)?;
    file.rewind()?;
    Ok(if magic.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(
            1 << 16,
            MultiGzDecoder::new(BufReader::new(file)),
        ))
    } else if magic.starts_with(&zst::MAGIC) {
        Box::new(BufReader::with_capacity(
            1 << 16,
            zst::Unpacked::new(BufReader::new(file)),
        ))
    } else if magic.starts_with(b"PK\x03\x04") {
        Box::new(BufReader::with_capacity(1 << 16, zip::only_file(file)?))
    } else {
        Box::new(BufReader::with_capacity(1 << 16, file))
    })
}

/// SHA-256 of a file as it lies there, and its length in bytes.
pub(crate) fn digest(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut file, &mut hash)?;
    let hex = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((hex, bytes))
}

impl Input {
    pub(crate) fn new(reader: Box<dyn BufRead>) -> Self {
        Self {
            reader,
            line: 0,
            buffer: Vec::new(),
            text: String::new(),
            back: Vec::new(),
            ended: false,
        }
    }

    /// The next line without its end. Where it is not UTF-8 it is read as Latin-1 and said so.
    pub(crate) fn line(&mut self, load: &mut Load) -> Option<&str> {
        if let Some(line) = self.back.pop() {
            self.line += 1;
            load.at(self.line);
            self.text = line;
            return Some(&self.text);
        }
        loop {
            match self.step() {
                Ok(Step::End) => return None,
                Ok(Step::Line) => {
                    self.line += 1;
                    load.at(self.line);
                    break;
                }
                Ok(Step::TooLong) => {
                    self.line += 1;
                    load.at(self.line);
                    load.read_row();
                    load.lose("line-too-long", "", || {
                        format!("longer than {MAX_LINE} bytes, passed over")
                    });
                }
                Err(problem) => {
                    self.ended = true;
                    load.cut_short(&problem);
                    return None;
                }
            }
        }
        while self.buffer.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            self.buffer.pop();
        }
        // The bytes become the text and the old text's room the next buffer: nothing is copied.
        let room = std::mem::take(&mut self.text).into_bytes();
        match String::from_utf8(std::mem::replace(&mut self.buffer, room)) {
            Ok(text) => self.text = text,
            Err(problem) => {
                self.text = problem.as_bytes().iter().map(|byte| char::from(*byte)).collect();
                load.odd("encoding", "", || "not UTF-8, read as Latin-1".to_owned());
            }
        }
        if self.line == 1 && self.text.starts_with('\u{feff}') {
            self.text.remove(0);
        }
        Some(&self.text)
    }

    /// Gives back the last lines that were read, in the order in which they were read.
    pub(crate) fn unread(&mut self, lines: Vec<String>) {
        self.line -= lines.len() as u64;
        self.back.extend(lines.into_iter().rev());
    }

    /// The number of the line that was read last, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.line
    }

    /// Fills the buffer up to a line's end, never past the bound.
    fn step(&mut self) -> io::Result<Step> {
        self.buffer.clear();
        if self.ended {
            return Ok(Step::End);
        }
        let (mut any, mut long) = (false, false);
        loop {
            let bytes = match self.reader.fill_buf() {
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if bytes.is_empty() {
                self.ended = true;
                break;
            }
            any = true;
            let end = memchr(b'\n', bytes);
            let taken = end.map_or(bytes.len(), |at| at + 1);
            if long || self.buffer.len() + taken > MAX_LINE {
                long = true;
                self.buffer.clear();
            } else {
                self.buffer.extend_from_slice(&bytes[..taken]);
            }
            self.reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        Ok(match (any, long) {
            (false, _) => Step::End,
            (_, true) => Step::TooLong,
            _ => Step::Line,
        })
    }

    /// The whole rest, where it is at most so many bytes; a document that cannot be read in pieces.
    pub(crate) fn whole(&mut self, most: usize, load: &mut Load) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        load.at(1);
        match (&mut self.reader).take(most as u64 + 1).read_to_end(&mut bytes) {
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

    /// The next element of the JSON array that the file is, as bytes. An element past the bound is passed over.
    pub(crate) fn element(&mut self, load: &mut Load) -> Option<&[u8]> {
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
                    self.ended = true;
                    load.cut_short(&problem);
                    return None;
                }
            }
        }
    }

    /// Some(true): an element lies in the buffer; Some(false): one was too long; None: the array has ended.
    fn element_step(&mut self, load: &mut Load) -> io::Result<Option<bool>> {
        self.buffer.clear();
        let (mut depth, mut in_text, mut escaped, mut long, mut begun) = (0_u32, false, false, false, false);
        while !self.ended {
            let bytes = self.reader.fill_buf()?;
            let Some(&byte) = bytes.first() else {
                self.ended = true;
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the array is not closed"));
            };
            self.reader.consume(1);
            if byte == b'\n' {
                self.line += 1;
            }
            if !begun {
                match byte {
                    b'[' if self.text.is_empty() => {
                        self.text.push('[');
                        self.line = self.line.max(1);
                        continue;
                    }
                    b']' => {
                        self.ended = true;
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
                        self.ended = true;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::FileRead;

    /// So many bytes without the end of a line, which nobody keeps.
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
        let mut input = Input::new(Box::new(BufReader::with_capacity(1 << 20, file)));
        let mut load = Load::default();
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
        assert!(input.buffer.capacity() <= 4 * MAX_LINE, "{}", input.buffer.capacity());
    }
}
