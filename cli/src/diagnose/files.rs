//! Files: which ones, unpacked how, and line by line within bounds.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

/// Longest line that is kept where lines are read; the rest of a longer one is skipped.
const LINE_BYTES: usize = 10 << 20;
/// Bytes of a block.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes that are looked at to tell text from anything else.
const HEAD: usize = 8 << 10;
/// Folders deeper than this are not entered.
const DEPTH: usize = 32;

/// Regular files under a path, in the order of their names.
pub(super) fn walk(path: &Path, problems: &mut Vec<String>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    visit(path, 0, &mut files, problems);
    files
}

fn visit(path: &Path, depth: usize, files: &mut Vec<PathBuf>, problems: &mut Vec<String>) {
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) => return problems.push(format!("{}: {error}", path.display())),
    };
    if kind.is_file() && depth > 0 && is_document(path) {
        problems.push(format!(
            "{}: no log by its name; name the file itself to have it read",
            path.display()
        ));
    } else if kind.is_file() {
        files.push(path.to_owned());
    } else if !kind.is_dir() {
        problems.push(format!("{}: neither a file nor a folder", path.display()));
    } else if depth > DEPTH || (depth > 0 && path.is_symlink()) {
        // A link may lead back up; whoever wants its target can name it.
        problems.push(format!("{}: a linked or too deep folder, not entered", path.display()));
    } else {
        match fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>())
        {
            Ok(mut entries) => {
                entries.sort();
                entries
                    .iter()
                    .for_each(|entry| visit(entry, depth + 1, files, problems));
            }
            Err(error) => problems.push(format!("{}: {error}", path.display())),
        }
    }
}

/// Documents and programs speak of failures that did not happen.
fn is_document(path: &Path) -> bool {
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    [
        "md", "rst", "html", "py", "sh", "c", "h", "rs", "toml", "yaml", "yml", "pdf", "ipynb",
    ]
    .contains(&ending.as_str())
}

/// A text file, unpacked as its first bytes say.
pub(super) fn open(path: &Path) -> io::Result<Lines> {
    let plain: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path)?)
    };
    let mut reader = BufReader::with_capacity(HEAD, plain);
    let head = reader.fill_buf()?;
    let unpacked: Box<dyn Read> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(reader))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(StreamingDecoder::new(reader).map_err(io::Error::other)?)
    } else {
        Box::new(reader)
    };
    let mut reader = BufReader::with_capacity(64 << 10, unpacked);
    if let Some(what) = not_text(reader.fill_buf()?) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Lines { reader })
}

/// Why the start of a file is not that of a text, if it is not.
fn not_text(head: &[u8]) -> Option<&'static str> {
    if head.get(257..262) == Some(b"ustar") {
        return Some("an archive; unpack it and name the folder");
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"BZh") || head.starts_with(b"\xfd7zXZ") {
        return Some("packed in a way that is not read here; unpack it first");
    }
    let nul = head.iter().take(HEAD).filter(|byte| **byte == 0).count();
    (nul > 0).then_some("not a text")
}

/// Text of one file: lines, decoded lossily, or blocks of bytes.
pub(super) struct Lines {
    reader: BufReader<Box<dyn Read>>,
}

impl Lines {
    /// The next bytes as they are, none at the end of the file. What arrived before an error is in the block.
    pub(super) fn block(&mut self, block: &mut Vec<u8>) -> io::Result<()> {
        block.clear();
        let mut limited = (&mut self.reader).take(BLOCK_BYTES as u64);
        limited.read_to_end(block).map(|_| ())
    }

    /// The next line without its end, or nothing at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let mut read_any = false;
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            read_any = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = LINE_BYTES - line.len();
            line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !read_any {
            return Ok(None);
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }
}
