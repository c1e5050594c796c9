//! Small files of sysfs and procfs that are read repeatedly: opened once, read from offset 0 each time.
//!
//! The kernel generates the text at every read from offset 0, so that an open file gives fresh data with one system
//! call instead of three and a path walk. A read of a removed device fails, and the file is opened again by its path.
//! In a recorded tree (regular files) a removed file keeps its last content, so that the owner of a `RereadFile` must list
//! the folder at intervals.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Most bytes read of a file: enough for every attribute that is watched.
const BYTES: usize = 512;

/// Most bytes of a file that is read whole.
const WHOLE: usize = 1 << 20;

/// File that is read repeatedly.
#[derive(Debug)]
pub(super) struct RereadFile {
    path: PathBuf,
    file: Option<File>,
    /// True if the file is closed after each read.
    passes: bool,
}

impl RereadFile {
    /// Creates a reader; the file is opened at the first read.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            passes: false,
        }
    }

    /// Closes the file after every read from now on, where too many files would be open.
    pub(super) fn pass(&mut self) {
        self.passes = true;
    }

    /// Reads at most [`BYTES`] and returns the result of `read` on the text; none if the file cannot be read.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let mut buffer = [0; BYTES];
        let length = self.fill(&mut buffer)?;
        let text = buffer.get(..length)?;
        read(&String::from_utf8_lossy(text))
    }

    /// Reads as [`RereadFile::read`] does, but the whole file, at most [`WHOLE`] bytes; `read` receives an empty text if the
    /// file cannot be read.
    pub(super) fn read_whole<T>(&mut self, read: impl FnOnce(&str) -> T) -> T {
        let mut text = vec![0; 8 * BYTES];
        let mut length = self.fill(&mut text).unwrap_or(0);
        // The kernel returns whole lines, which may be less than the buffer holds.
        while length > 0 && length < WHOLE {
            text.resize(length + 8 * BYTES, 0);
            let (Some(file), Some(rest)) = (&self.file, text.get_mut(length..)) else {
                break;
            };
            match file.read_at(rest, length as u64) {
                Ok(0) | Err(_) => break,
                Ok(more) => length += more,
            }
        }
        text.truncate(length);
        read(&String::from_utf8_lossy(&text))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if let Some(length) = self.file.as_ref().and_then(|file| file.read_at(buffer, 0).ok()) {
            return Some(length);
        }
        self.file = None;
        let file = File::open(&self.path).ok()?;
        let length = file.read_at(buffer, 0).ok()?;
        self.file = Some(file).filter(|_| !self.passes);
        Some(length)
    }
}

/// Parses the number at the start of a text such as `16` or `16.0 GT/s PCIe`.
pub(super) fn first_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    fn number(kept: &mut RereadFile) -> Option<f64> {
        kept.read(first_number)
    }

    #[test]
    fn each_read_gives_what_the_file_holds_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut kept = RereadFile::new(path.clone());
        assert_eq!(number(&mut kept), None);
        fs::write(&path, "4: ACTIVE\n").unwrap();
        assert_eq!(number(&mut kept), Some(4.0));
        fs::write(&path, "16.0 GT/s PCIe\n").unwrap();
        assert_eq!(number(&mut kept), Some(16.0));
        fs::write(&path, [0xff, 0, b'7']).unwrap();
        assert_eq!(number(&mut kept), None);
        fs::write(&path, "9".repeat(4 * BYTES)).unwrap();
        assert!(number(&mut kept).is_some());
    }

    #[test]
    fn a_long_file_is_read_whole_and_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mounts");
        let mut kept = RereadFile::new(path.clone());
        let mut lines = || kept.read_whole(|text| text.lines().count());
        assert_eq!(lines(), 0);
        for count in [3_000, 2, 0] {
            fs::write(&path, "/dev/sda1 / ext4 rw 0 0\n".repeat(count)).unwrap();
            assert_eq!(lines(), count);
        }
        let mut mounts = RereadFile::new("/proc/self/mounts".into());
        let whole = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!whole.is_empty() && mounts.read_whole(|text| text.len()) > 0);
    }

    #[test]
    fn the_kernels_own_files_are_fresh_at_every_read() {
        let mut kept = RereadFile::new("/proc/self/comm".into());
        let first = kept.read(|text| Some(text.to_owned())).unwrap();
        assert!(!first.is_empty());
        let mut uptime = RereadFile::new("/proc/uptime".into());
        let before = number(&mut uptime).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while number(&mut uptime).unwrap() <= before {
            assert!(std::time::Instant::now() < until, "the clock of the kernel stands");
            std::thread::yield_now();
        }
    }

    #[test]
    fn numbers_are_what_a_text_begins_with() {
        assert_eq!(first_number("400 Gb/sec (4X NDR)\n"), Some(400.0));
        assert_eq!(first_number(" 0\n"), Some(0.0));
        for text in ["", "-1", "Unknown", ".", "1.2.3 x"] {
            assert_eq!(first_number(text), None, "{text}");
        }
    }
}
