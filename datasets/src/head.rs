//! Start of a file, from which its source is recognised.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::columnar;
use crate::input::unpacked;

/// Number of bytes that are read, after decompression.
const LOOKED_AT: u64 = 32 << 10;
/// Maximum depth and number of files of a folder.
const DEEP: usize = 8;
const MOST_FILES: usize = 8_000;

/// Properties of a file before it is read.
#[derive(Debug)]
pub(crate) struct FileHead {
    pub(crate) path: PathBuf,
    /// Path relative to the opened one.
    pub(crate) relative: String,
    /// Start of the file; read as Latin-1 if it is not UTF-8.
    pub(crate) text: String,
    /// Raw bytes of the start, if they are not UTF-8.
    pub(crate) bytes: Vec<u8>,
    /// Error of reading the start.
    pub(crate) unreadable: Option<io::Error>,
    /// Columns and rows of a Parquet file.
    pub(crate) columns: Vec<String>,
    pub(crate) parquet_rows: u64,
    /// Header in a separate file `NAME.header`.
    pub(crate) header: Option<String>,
}

impl FileHead {
    fn new(root: &Path, path: PathBuf) -> Self {
        let mut bytes = Vec::new();
        // A truncated file still has a start.
        let looked = unpacked(&path).and_then(|reader| reader.take(LOOKED_AT).read_to_end(&mut bytes));
        let unreadable = looked.err().filter(|_| bytes.is_empty());
        let (text, bytes) = match std::str::from_utf8(&bytes) {
            Ok(text) => (text.to_owned(), Vec::new()),
            // The limit splits a character.
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

    /// Returns a line by index, from 0, without its end.
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

/// Reads the short file `NAME.header` beside `NAME.csv`.
fn beside(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = rankguard_files::open_regular(&path.with_extension("header")).ok()?;
    file.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the files below a path, sorted, and true if there are more than the limit.
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

/// Adds the files of a folder. `above` holds its ancestors by device and inode: a link back to one is not followed.
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
            // A folder that cannot be listed contains nothing to recognise.
            let _ = walk(&path, above, paths, more);
        } else if about.is_file() && paths.len() < MOST_FILES {
            paths.push(path);
        } else if about.is_file() || about.is_dir() {
            *more = true;
        }
    }
    Ok(())
}
