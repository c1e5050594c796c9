//! Following one file as it grows, is rotated, is truncated or cannot be read.
//!
//! A line is handed out when its newline has come; what is left without one is handed out when the file is finished or
//! rotated away. Bytes that are not text are read lossily, lines beyond [`LINE_BYTES_MAX`] are cut (RG-11). Not seen: a
//! file that is truncated and grows beyond its old length between two looks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longest line that is kept whole, bytes.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Most bytes read at one look, so that one noisy file cannot starve the others.
const LOOK_BYTES_MAX: usize = 4 << 20;

/// What a look at a file gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A line, without its newline.
    Line(String),
    /// Something was lost or cannot be read (RG-4).
    Problem {
        /// What and why.
        what: String,
        /// How much, where it can be told.
        lost: Option<u64>,
    },
}

/// Where to begin with a file that is there at the first look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// At its first byte.
    Beginning,
    /// At its end: what it holds is of unknown age.
    End,
    /// Where an earlier reader stood ([`Follower::position`]).
    At(String),
}

/// A reader of one file.
#[derive(Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    start: Option<Start>,
    open: Option<Open>,
    /// Bytes of a line whose newline has not come.
    partial: Vec<u8>,
    /// Whether the rest of an over-long line is being skipped.
    skipping: bool,
    /// The last problem with opening or reading; told once until it changes.
    complaint: Option<String>,
}

#[derive(Debug)]
struct Open {
    file: File,
    device: u64,
    inode: u64,
    offset: u64,
}

impl Follower {
    pub(crate) fn new(path: impl Into<PathBuf>, start: Start) -> Self {
        Self {
            path: path.into(),
            start: Some(start),
            open: None,
            partial: Vec::new(),
            skipping: false,
            complaint: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next unread line begins, for [`Start::At`]. None before the file was there.
    pub(crate) fn position(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        let offset = open.offset - self.partial.len() as u64;
        Some(format!("{}:{}:{offset}", open.device, open.inode))
    }

    /// Reads what is new. Waits for nothing.
    pub(crate) fn look(&mut self, out: &mut Vec<Seen>) {
        if self.open.is_none() && !self.try_open(out) {
            return;
        }
        if self.read_on(out) {
            // There is more to read before the end: what became of the file can wait.
            return;
        }
        self.check_identity(out);
    }

    /// Reads what is new and hands out an unfinished last line too: nobody will write the rest.
    pub(crate) fn finish(&mut self, out: &mut Vec<Seen>) {
        self.look(out);
        self.flush_partial(out);
    }

    fn try_open(&mut self, out: &mut Vec<Seen>) -> bool {
        // Without O_NONBLOCK, opening a named pipe would wait for a writer.
        let opened = File::options()
            .read(true)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0))
            .open(&self.path)
            .and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        let (mut file, metadata) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It may come later, and then everything in it is new. An earlier reader's place stays valid.
                if self.start == Some(Start::End) {
                    self.start = Some(Start::Beginning);
                }
                return false;
            }
            Err(error) => {
                self.complain(format!("cannot read {}: {error}", self.path.display()), out);
                return false;
            }
        };
        if !metadata.is_file() {
            self.complain(
                format!("cannot follow {}: it is not a regular file", self.path.display()),
                out,
            );
            return false;
        }
        let offset = self.first_offset(&metadata, out);
        if let Err(error) = file.seek(SeekFrom::Start(offset)) {
            self.complain(format!("cannot read {}: {error}", self.path.display()), out);
            return false;
        }
        self.complaint = None;
        self.open = Some(Open {
            file,
            device: metadata.dev(),
            inode: metadata.ino(),
            offset,
        });
        true
    }

    fn first_offset(&mut self, metadata: &std::fs::Metadata, out: &mut Vec<Seen>) -> u64 {
        let path = self.path.display();
        let mut problem = |what: String, lost| out.push(Seen::Problem { what, lost });
        match self.start.take().unwrap_or(Start::Beginning) {
            Start::Beginning => 0,
            Start::End => {
                if metadata.len() > 0 {
                    let what = format!(
                        "{path} was not read from before the agent's first start: {} bytes of unknown age",
                        metadata.len()
                    );
                    problem(what, None);
                }
                metadata.len()
            }
            Start::At(position) => {
                let mut parts = position.split(':').map(str::parse::<u64>);
                let (Some(Ok(device)), Some(Ok(inode)), Some(Ok(offset))) = (parts.next(), parts.next(), parts.next())
                else {
                    problem(
                        format!("{path} is read again: the stored position {position:?} means nothing"),
                        None,
                    );
                    return 0;
                };
                if (device, inode) != (metadata.dev(), metadata.ino()) {
                    problem(
                        format!("{path} was rotated while the agent was away: the end of the old file is not read"),
                        None,
                    );
                    0
                } else if offset > metadata.len() {
                    problem(format!("{path} was truncated while the agent was away"), None);
                    0
                } else {
                    offset
                }
            }
        }
    }

    /// Whether there is more than one look may read.
    fn read_on(&mut self, out: &mut Vec<Seen>) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        let mut total = 0;
        loop {
            let Some(open) = &mut self.open else { return false };
            match open.file.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    open.offset += count as u64;
                    total += count;
                    self.cut(&buffer[..count], out);
                    if total >= LOOK_BYTES_MAX {
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.complain(format!("cannot read {}: {error}", self.path.display()), out);
                    self.open = None;
                    return false;
                }
            }
        }
    }

    fn cut(&mut self, mut bytes: &[u8], out: &mut Vec<Seen>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            if self.skipping {
                self.skipping = false;
                self.partial.clear();
            } else {
                self.partial.extend_from_slice(&bytes[..end]);
                self.flush_line(out);
            }
            bytes = &bytes[end + 1..];
        }
        if self.skipping {
            return;
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > LINE_BYTES_MAX {
            self.flush_line(out);
            self.skipping = true;
        }
    }

    fn flush_line(&mut self, out: &mut Vec<Seen>) {
        let mut line = std::mem::take(&mut self.partial);
        line.truncate(LINE_BYTES_MAX);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        out.push(Seen::Line(String::from_utf8_lossy(&line).into_owned()));
    }

    fn flush_partial(&mut self, out: &mut Vec<Seen>) {
        if !self.partial.is_empty() && !self.skipping {
            self.flush_line(out);
        }
        self.partial.clear();
        self.skipping = false;
    }

    fn check_identity(&mut self, out: &mut Vec<Seen>) {
        let Some(open) = &mut self.open else { return };
        match std::fs::metadata(&self.path) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) != (open.device, open.inode) => {
                // Rotated: the old file has been read to its end above, the new one begins at its beginning.
                self.flush_partial(out);
                self.open = None;
                self.start = Some(Start::Beginning);
                if self.try_open(out) {
                    self.read_on(out);
                }
            }
            Ok(metadata) if metadata.len() < open.offset => {
                let what = format!(
                    "{} was truncated from {} to {} bytes: lines between two looks may be lost",
                    self.path.display(),
                    open.offset,
                    metadata.len()
                );
                out.push(Seen::Problem { what, lost: None });
                open.offset = 0;
                self.partial.clear();
                self.skipping = false;
                if open.file.seek(SeekFrom::Start(0)).is_ok() {
                    self.read_on(out);
                }
            }
            // Removed: the open file is still read, and its successor opened when it comes.
            Ok(_) | Err(_) => {}
        }
    }

    fn complain(&mut self, what: String, out: &mut Vec<Seen>) {
        if self.complaint.as_ref() != Some(&what) {
            self.complaint = Some(what.clone());
            out.push(Seen::Problem { what, lost: None });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::io::Write;

    use super::*;

    fn look(follower: &mut Follower) -> Vec<String> {
        let mut out = Vec::new();
        follower.look(&mut out);
        told(out)
    }

    fn told(out: Vec<Seen>) -> Vec<String> {
        out.into_iter()
            .map(|seen| match seen {
                Seen::Line(text) => text,
                Seen::Problem { what, .. } => format!("!{what}"),
            })
            .collect()
    }

    fn append(path: &Path, bytes: &[u8]) {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    #[test]
    fn a_line_comes_when_its_newline_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut follower = Follower::new(&path, Start::Beginning);
        assert!(look(&mut follower).is_empty());
        append(&path, b"one\ntw");
        assert_eq!(look(&mut follower), ["one"]);
        append(&path, b"o\r\nthree");
        assert_eq!(look(&mut follower), ["two"]);
        let mut out = Vec::new();
        follower.finish(&mut out);
        assert_eq!(told(out), ["three"]);
    }

    #[test]
    fn a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"one\n");
        let mut follower = Follower::new(&path, Start::Beginning);
        assert_eq!(look(&mut follower), ["one"]);
        append(&path, b"two\nunfinished");
        fs::rename(&path, dir.path().join("log.1")).unwrap();
        append(&path, b"three\n");
        assert_eq!(look(&mut follower), ["two", "unfinished", "three"]);
    }

    #[test]
    fn a_truncated_file_is_read_again_and_said_to_be_truncated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"one\ntwo\n");
        let mut follower = Follower::new(&path, Start::Beginning);
        assert_eq!(look(&mut follower).len(), 2);
        fs::write(&path, b"new\n").unwrap();
        let seen = look(&mut follower);
        assert!(seen[0].contains("was truncated from 8 to 4 bytes"), "{seen:?}");
        assert_eq!(seen[1..], ["new"]);
    }

    #[test]
    fn binary_bytes_and_endless_lines_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"\xff\xfe\x00bin\n");
        append(&path, &vec![b'x'; 3 * LINE_BYTES_MAX]);
        append(&path, b"\nafter\n");
        let mut follower = Follower::new(&path, Start::Beginning);
        let seen = look(&mut follower);
        assert_eq!(seen.len(), 3);
        assert_eq!(seen[0], "\u{fffd}\u{fffd}\0bin");
        assert_eq!(seen[1].len(), LINE_BYTES_MAX);
        assert_eq!(seen[2], "after");
    }

    #[test]
    fn what_cannot_be_followed_is_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut follower = Follower::new(dir.path(), Start::Beginning);
        let seen = look(&mut follower);
        assert_eq!(seen.len(), 1);
        assert!(seen[0].contains("not a regular file"), "{seen:?}");
        assert!(look(&mut follower).is_empty());
    }

    #[test]
    fn a_reader_goes_on_where_the_one_before_stood() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"one\ntwo\nthr");
        let mut first = Follower::new(&path, Start::Beginning);
        assert_eq!(look(&mut first), ["one", "two"]);
        let position = first.position().unwrap();
        append(&path, b"ee\n");
        let mut second = Follower::new(&path, Start::At(position.clone()));
        assert_eq!(look(&mut second), ["three"]);
        fs::rename(&path, dir.path().join("log.1")).unwrap();
        append(&path, b"new\n");
        let mut third = Follower::new(&path, Start::At(position));
        let seen = look(&mut third);
        assert!(seen[0].contains("rotated while the agent was away"), "{seen:?}");
        assert_eq!(seen[1], "new");
    }

    #[test]
    fn old_lines_of_unknown_age_are_left_out_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"old\n");
        let mut follower = Follower::new(&path, Start::End);
        let seen = look(&mut follower);
        assert!(
            seen.len() == 1 && seen[0].contains("4 bytes of unknown age"),
            "{seen:?}"
        );
        append(&path, b"new\n");
        assert_eq!(look(&mut follower), ["new"]);
        // A file that appears later is new from its first byte.
        let mut later = Follower::new(dir.path().join("later"), Start::End);
        assert!(look(&mut later).is_empty());
        append(&dir.path().join("later"), b"first\n");
        assert_eq!(look(&mut later), ["first"]);
    }
}
