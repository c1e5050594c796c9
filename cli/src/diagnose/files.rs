//! Reading of files: selection, unpacking, and bounded lines.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rankguard_files::{BudgetedReader, CompressionFormat, ReadBudget, SpecialFile, open_named, unpacked};

/// Maximum length of a retained line; the rest of a longer one is skipped.
const LINE_BYTES: usize = 10 << 20;
/// Bytes of a block. Limits are checked between blocks.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes that are examined to distinguish text from other content.
const HEAD: usize = 8 << 10;
/// Maximum depth of folders; deeper ones are not entered.
const DEPTH: usize = 32;
/// Maximum number of files below one path; further files are reported, not read.
const FILES: usize = 100_000;

/// Lists the regular files under a path, sorted by name. The path itself may be a pipe, or `-` for standard input,
/// because it was given explicitly.
pub(super) fn walk(path: &Path, problems: &mut Vec<String>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if path == Path::new("-") {
        files.push(path.to_owned());
    } else {
        let before = problems.len();
        visit(path, 0, &mut files, problems);
        if files.is_empty() && problems.len() == before {
            problems.push(format!("{}: the folder is empty", path.display()));
        }
    }
    if files.len() > FILES {
        problems.push(format!(
            "{}: {} files, of which the first {FILES} are read; name a smaller folder",
            path.display(),
            files.len()
        ));
        files.truncate(FILES);
    }
    files
}

fn visit(path: &Path, depth: usize, files: &mut Vec<PathBuf>, problems: &mut Vec<String>) {
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) => return problems.push(format!("{}: {error}", path.display())),
    };
    if kind.is_file() && depth > 0 && is_document(path) {
        problems.push(format!(
            "{}: not a log by its name; name the file itself to read it",
            path.display()
        ));
    } else if kind.is_file() || depth == 0 && kind.is_fifo() {
        files.push(path.to_owned());
    } else if let Some(special) = SpecialFile::of(kind).filter(|special| *special != SpecialFile::Folder) {
        problems.push(format!("{}: {special}", path.display()));
    } else if depth > DEPTH || (depth > 0 && path.is_symlink()) {
        // A link may lead to a parent folder; its target can be given as a path.
        problems.push(format!(
            "{}: a linked or too deep folder is not entered",
            path.display()
        ));
    } else {
        let listed = |entries: fs::ReadDir| -> io::Result<Vec<PathBuf>> {
            entries.take(FILES + 1).map(|entry| Ok(entry?.path())).collect()
        };
        match fs::read_dir(path).and_then(listed) {
            Ok(_) if files.len() > FILES => {}
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

/// True for documents and programs, which mention failures that did not happen.
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

/// Opens a text file, unpacked by the format of its first bytes, within the remaining budget.
pub(super) fn open(path: &Path, budget: &ReadBudget) -> io::Result<FileLines> {
    let input = open_named(path, budget.pipe_wait())?;
    let packed = Box::new(BufReader::with_capacity(HEAD, input.reader));
    // A limit given by the user replaces the ratio.
    let packed_bytes = match budget.limits().text_bytes {
        Some(_) => None,
        None => Some(input.bytes.unwrap_or(0)),
    };
    let mut text = unpacked(packed, packed_bytes)?;
    if let Some(what) = not_text(text.fill_buf()?) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let reader = budget.reader(text, input.bytes);
    Ok(FileLines {
        reader: BufReader::with_capacity(64 << 10, reader),
    })
}

/// Describes why the start of a file is not text; `None` if it is.
fn not_text(head: &[u8]) -> Option<&'static str> {
    if head.get(257..262) == Some(b"ustar") {
        return Some("an archive; unpack it and name the folder");
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"BZh") || head.starts_with(b"\xfd7zXZ") {
        return Some("unsupported compression; unpack it first");
    }
    if CompressionFormat::of(head) != CompressionFormat::Plain {
        return Some("compressed twice; unpack it first");
    }
    let nul = head.iter().take(HEAD).filter(|byte| **byte == 0).count();
    (nul > 0).then_some("not text")
}

/// Text of one file: lines, decoded lossily, or blocks of bytes.
pub(super) struct FileLines {
    reader: BufReader<BudgetedReader<Box<dyn io::BufRead>>>,
}

impl FileLines {
    /// Reads the next bytes unchanged, none at the end of the file. Bytes received before an error are in the block.
    pub(super) fn block(&mut self, block: &mut Vec<u8>) -> io::Result<()> {
        block.clear();
        let mut limited = (&mut self.reader).take(BLOCK_BYTES as u64);
        limited.read_to_end(block).map(|_| ())
    }

    /// Returns the next line without its end; `None` at the end of the file.
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
