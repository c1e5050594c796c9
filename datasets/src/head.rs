//! Start of each file of a folder, from which the source format is recognised.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::columnar;
use crate::input::unpacked;

/// Number of bytes read from the start of a file, after decompression.
const LOOKED_AT: u64 = 32 << 10;
/// Maximum depth of folders below the opened one.
const DEEP: usize = 8;
/// Maximum number of files in all folders together.
const MOST_FILES: usize = 8_000;

/// Start and format hints of a file that is not loaded yet.
#[derive(Debug)]
pub(crate) struct FileHead {
    pub(crate) path: PathBuf,
    /// Path relative to the opened one; the file name if the file itself was opened.
    pub(crate) relative: String,
    /// Start of the file without byte order mark; decoded as Latin-1 if it is not UTF-8.
    pub(crate) text: String,
    /// Raw bytes of the start; empty if they are UTF-8.
    pub(crate) bytes: Vec<u8>,
    /// Error of reading the start, if no byte could be read.
    pub(crate) unreadable: Option<io::Error>,
    /// Column names of a Parquet file; empty for other files.
    pub(crate) columns: Vec<String>,
    /// Number of rows of a Parquet file; 0 for other files.
    pub(crate) parquet_rows: u64,
    /// Content of the file `NAME.header` beside this one.
    pub(crate) header: Option<String>,
}

impl FileHead {
    fn new(root: &Path, path: PathBuf) -> Self {
        let mut bytes = Vec::new();
        // The start of a truncated file can be read, so an error counts only if no byte was read.
        let looked = unpacked(&path).and_then(|reader| reader.take(LOOKED_AT).read_to_end(&mut bytes));
        let unreadable = looked.err().filter(|_| bytes.is_empty());
        let (text, bytes) = match std::str::from_utf8(&bytes) {
            Ok(text) => (text.to_owned(), Vec::new()),
            // The limit or a truncation splits the last character, which is dropped.
            Err(problem) if problem.error_len().is_none() => {
                bytes.truncate(problem.valid_up_to());
                (String::from_utf8(bytes).unwrap_or_default(), Vec::new())
            }
            Err(_) => (bytes.iter().map(|byte| char::from(*byte)).collect(), bytes),
        };
        let relative = match path.strip_prefix(root) {
            Ok(inside) if !inside.as_os_str().is_empty() => inside.to_string_lossy().into_owned(),
            _ => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let (columns, parquet_rows) = if text.starts_with("PAR1") {
            columnar::about(&path).unwrap_or_default()
        } else {
            Default::default()
        };
        let header = beside(&path).filter(|_| path.extension().is_none_or(|extension| extension != "header"));
        Self {
            path,
            relative,
            text: text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text),
            bytes,
            unreadable,
            columns,
            parquet_rows,
            header,
        }
    }

    /// Returns a line of the start by index, from 0, without its line end; empty if there is no such line.
    pub(crate) fn line(&self, at: usize) -> &str {
        self.text.lines().nth(at).unwrap_or("").trim_end_matches('\r')
    }

    /// Returns true if the first line is a header with at least these fields, in any order.
    pub(crate) fn has_columns(&self, delimiter: &str, wanted: &[&str]) -> bool {
        let first = self.line(0);
        wanted.iter().all(|name| {
            first
                .split(delimiter)
                .any(|field| field.trim().trim_matches('"') == *name)
        })
    }
}

/// Reads the first 4,096 bytes of `NAME.header` beside `NAME.csv`; `None` if it is missing, no regular file or not
/// UTF-8.
fn beside(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = rankguard_files::open_regular(&path.with_extension("header")).ok()?;
    file.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the files below a path, sorted, and true if files or folders beyond the limits were skipped. Returns an
/// error if the path is neither a file nor a folder that can be listed.
pub(crate) fn heads(root: &Path) -> io::Result<(Vec<FileHead>, bool)> {
    let mut paths = Vec::new();
    let mut more = false;
    let about = fs::metadata(root)?;
    if about.is_dir() {
        walk(root, &mut BTreeSet::new(), &mut paths, &mut more)?;
        paths.sort();
    } else if about.is_file() {
        paths.push(root.to_owned());
    } else {
        // Files are read twice, for their digest and for their rows, so a pipe is refused.
        return Err(io::Error::other("neither a file nor a folder"));
    }
    Ok((paths.into_iter().map(|path| FileHead::new(root, path)).collect(), more))
}

/// Adds the files of a folder and of its subfolders. `above` holds the ancestors by device and inode: a link back to
/// one is not followed.
fn walk(folder: &Path, above: &mut BTreeSet<(u64, u64)>, paths: &mut Vec<PathBuf>, more: &mut bool) -> io::Result<()> {
    let own = fs::metadata(folder)?;
    let own = (own.dev(), own.ino());
    if !above.insert(own) {
        return Ok(());
    }
    let walked = entries(folder, above, paths, more);
    above.remove(&own);
    walked
}

/// Adds the files of a folder, and walks its subfolders. Sets `more` if a limit excludes an entry.
fn entries(
    folder: &Path,
    above: &mut BTreeSet<(u64, u64)>,
    paths: &mut Vec<PathBuf>,
    more: &mut bool,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Ok(about) = fs::metadata(&path) else {
            continue;
        };
        if about.is_dir() && above.len() <= DEEP {
            // A subfolder that cannot be listed is skipped.
            let _ = walk(&path, above, paths, more);
        } else if about.is_file() && paths.len() < MOST_FILES {
            paths.push(path);
        } else if about.is_file() || about.is_dir() {
            *more = true;
        }
    }
    Ok(())
}
