//! Following one file as it grows, is rotated, is truncated or cannot be read.
//!
//! A line is handed out when its newline has come; what is left without one is handed out when nothing was added for
//! [`PARTIAL_IDLE`], or when the file is finished or rotated away. Bytes that are not text are read lossily, lines beyond
//! [`LINE_BYTES_MAX`] are cut (RG-11). Not seen: a file that is truncated and grows beyond its old length between two
//! looks; what is written to a renamed file after its successor was opened.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest line that is kept whole, bytes.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Most bytes read at one look, so that one noisy file cannot starve the others.
const LOOK_BYTES_MAX: usize = 4 << 20;

/// Most looks when a file is finished: who writes faster than it is read cannot hold up the end of the agent.
const FINISH_LOOKS_MAX: u32 = 16;

/// A last line without a newline is handed out when nothing was added to it for this long: a program that died in the
/// middle of a line has said what it had to say.
pub(crate) const PARTIAL_IDLE: Duration = Duration::from_millis(500);

/// How long a file that was rotated away may be taken for the one of its name while nothing is written into it.
const IDENTITY: Duration = Duration::from_secs(1);

/// What a look at a file gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A line.
    Line {
        /// Without its newline.
        text: String,
        /// Where it begins.
        at: Place,
    },
    /// Something was lost or cannot be read (RG-4).
    Problem {
        /// What and why.
        what: String,
        /// How much, where it can be told.
        lost: Option<u64>,
    },
}

/// A place in a file, whatever its name is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    device: u64,
    inode: u64,
    offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.device, self.inode, self.offset)
    }
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
    /// When bytes were last added to it.
    grown: Option<Instant>,
    /// When it was last looked at whether the open file is still the one of this name.
    checked: Option<Instant>,
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
            grown: None,
            checked: None,
            skipping: false,
            complaint: None,
        }
    }

    /// Where the next unread line begins, for [`Start::At`]. None before the file was there.
    pub(crate) fn position(&self) -> Option<Place> {
        let open = self.open.as_ref()?;
        Some(Place {
            device: open.device,
            inode: open.inode,
            offset: open.offset - self.partial.len() as u64,
        })
    }

    /// Reads what is new. Waits for nothing. Says whether the end was reached; one look reads a bounded amount.
    pub(crate) fn look(&mut self, now: Instant, out: &mut Vec<Seen>) -> bool {
        if self.open.is_none() && !self.try_open(out) {
            return true;
        }
        if self.is_unchanged(now) {
            self.flush_idle(now, out);
            return true;
        }
        if self.read_on(now, out) {
            // There is more to read before the end: what became of the file can wait.
            return false;
        }
        let ended = self.check_identity(now, out);
        self.checked = Some(now);
        self.flush_idle(now, out);
        ended
    }

    /// Whether the open file has nothing new, and whether it is still the one of this name was looked at not long ago.
    /// Files are looked at many times a second, and most of the time nothing is written.
    fn is_unchanged(&self, now: Instant) -> bool {
        let Some(open) = &self.open else { return false };
        let fresh = |checked: Instant| now.saturating_duration_since(checked) < IDENTITY;
        self.checked.is_some_and(fresh) && open.file.metadata().is_ok_and(|found| found.len() == open.offset)
    }

    fn flush_idle(&mut self, now: Instant, out: &mut Vec<Seen>) {
        let idle = |grown: Instant| now.saturating_duration_since(grown) >= PARTIAL_IDLE;
        if self.grown.is_some_and(idle) {
            self.flush_partial(out);
        }
    }

    /// Reads what is new and hands out an unfinished last line too: nobody will write the rest.
    pub(crate) fn finish(&mut self, now: Instant, out: &mut Vec<Seen>) {
        self.checked = None;
        for _ in 0..FINISH_LOOKS_MAX {
            if self.look(now, out) {
                break;
            }
        }
        self.flush_partial(out);
    }

    fn try_open(&mut self, out: &mut Vec<Seen>) -> bool {
        let (file, metadata) = match open(&self.path) {
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
            let what = format!("cannot follow {}: it is not a regular file", self.path.display());
            self.complain(what, out);
            return false;
        }
        let (mut file, metadata, offset) = self.first_offset(file, metadata, out);
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

    /// Which file to begin with, and where. It is another one than the path's when the file was rotated while nobody
    /// followed it and the renamed one still lies beside it.
    fn first_offset(&mut self, file: File, metadata: Metadata, out: &mut Vec<Seen>) -> (File, Metadata, u64) {
        let mut problem = |what: String| out.push(Seen::Problem { what, lost: None });
        let path = self.path.display();
        let position = match self.start.take().unwrap_or(Start::Beginning) {
            Start::Beginning => return (file, metadata, 0),
            Start::End => {
                let len = metadata.len();
                if len > 0 {
                    problem(format!(
                        "{path} was not read from before the agent's first start: {len} bytes of unknown age"
                    ));
                }
                return (file, metadata, len);
            }
            Start::At(position) => position,
        };
        let mut parts = position.split(':').map(str::parse::<u64>);
        let (Some(Ok(device)), Some(Ok(inode)), Some(Ok(offset))) = (parts.next(), parts.next(), parts.next()) else {
            problem(format!(
                "{path} is read again: the stored position {position:?} means nothing"
            ));
            return (file, metadata, 0);
        };
        if (device, inode) != (metadata.dev(), metadata.ino()) {
            if let Some((old, old_metadata)) = renamed(&self.path, device, inode, offset) {
                return (old, old_metadata, offset);
            }
            problem(format!(
                "{path} was rotated while the agent was away: the end of the old file is not read"
            ));
            return (file, metadata, 0);
        }
        if offset > metadata.len() {
            problem(format!("{path} was truncated while the agent was away"));
            return (file, metadata, 0);
        }
        (file, metadata, offset)
    }

    /// Whether there is more than one look may read.
    fn read_on(&mut self, now: Instant, out: &mut Vec<Seen>) -> bool {
        let mut buffer = [0; 16 * 1024];
        let mut total = 0;
        loop {
            let Some(open) = &mut self.open else { return false };
            match open.file.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    total += count;
                    self.cut(&buffer[..count], out);
                    self.grown = (!self.partial.is_empty()).then_some(now);
                    if total >= LOOK_BYTES_MAX {
                        return true;
                    }
                    // What comes after a short read comes at the next look.
                    if count < buffer.len() {
                        return false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.complain(format!("cannot read {}: {error}", self.path.display()), out);
                    // When it can be read again, it goes on where it stood.
                    self.start = self.position().map(|place| Start::At(place.to_string()));
                    self.partial.clear();
                    self.open = None;
                    return false;
                }
            }
        }
    }

    /// Takes bytes that were just read.
    fn cut(&mut self, mut bytes: &[u8], out: &mut Vec<Seen>) {
        while let Some(end) = newline(bytes) {
            self.collect(&bytes[..end]);
            if self.skipping {
                self.partial.clear();
            } else {
                self.flush_line(out);
            }
            self.skipping = false;
            self.advance(1);
            bytes = &bytes[end + 1..];
        }
        self.collect(bytes);
        if self.partial.len() > LINE_BYTES_MAX {
            self.flush_line(out);
            self.skipping = true;
        }
    }

    /// Bytes of one line.
    fn collect(&mut self, bytes: &[u8]) {
        if !self.skipping {
            self.partial.extend_from_slice(bytes);
        }
        self.advance(bytes.len());
    }

    fn advance(&mut self, bytes: usize) {
        if let Some(open) = &mut self.open {
            open.offset += bytes as u64;
        }
    }

    fn flush_line(&mut self, out: &mut Vec<Seen>) {
        let at = self.position();
        let mut line = std::mem::take(&mut self.partial);
        line.truncate(LINE_BYTES_MAX);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        // Lines come from files that are open.
        let Some(at) = at else { return };
        out.push(Seen::Line {
            text: String::from_utf8_lossy(&line).into_owned(),
            at,
        });
    }

    fn flush_partial(&mut self, out: &mut Vec<Seen>) {
        if !self.partial.is_empty() && !self.skipping {
            self.flush_line(out);
        }
        self.partial.clear();
        self.grown = None;
    }

    /// What became of the file since it was opened. Says whether the end of what is there now was reached.
    fn check_identity(&mut self, now: Instant, out: &mut Vec<Seen>) -> bool {
        let Some(open) = &mut self.open else { return true };
        match std::fs::metadata(&self.path) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) != (open.device, open.inode) => {
                // Rotated. The last lines may have come between the read above and the renaming.
                if self.read_on(now, out) {
                    return false;
                }
                self.flush_partial(out);
                self.skipping = false;
                self.open = None;
                self.start = Some(Start::Beginning);
                !(self.try_open(out) && self.read_on(now, out))
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
                let again = open.file.seek(SeekFrom::Start(0));
                self.partial.clear();
                self.grown = None;
                self.skipping = false;
                !(again.is_ok() && self.read_on(now, out))
            }
            // Removed: the open file is still read, and its successor opened when it comes.
            Ok(_) | Err(_) => true,
        }
    }

    fn complain(&mut self, what: String, out: &mut Vec<Seen>) {
        if self.complaint.as_ref() != Some(&what) {
            self.complaint = Some(what.clone());
            out.push(Seen::Problem { what, lost: None });
        }
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

/// Without `O_NONBLOCK`, opening a named pipe would wait for a writer.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// The file of this identity under another name in the same folder, when it still holds `offset` bytes.
fn renamed(path: &Path, device: u64, inode: u64, offset: u64) -> Option<(File, Metadata)> {
    let siblings = std::fs::read_dir(path.parent()?).ok()?;
    let same = |found: &Metadata| (found.dev(), found.ino()) == (device, inode) && found.is_file();
    let sibling = siblings
        .flatten()
        .find(|entry| entry.metadata().is_ok_and(|found| same(&found)))?;
    open(&sibling.path())
        .ok()
        .filter(|(_, found)| same(found) && found.len() >= offset)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::io::Write;

    use super::*;

    /// A look after a while.
    fn look(follower: &mut Follower) -> Vec<String> {
        follower.checked = None;
        look_at(follower, Instant::now())
    }

    fn look_at(follower: &mut Follower, now: Instant) -> Vec<String> {
        let mut out = Vec::new();
        follower.look(now, &mut out);
        told(out)
    }

    fn told(out: Vec<Seen>) -> Vec<String> {
        out.into_iter()
            .map(|seen| match seen {
                Seen::Line { text, .. } => text,
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
        follower.finish(Instant::now(), &mut out);
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
        let position = first.position().unwrap().to_string();
        append(&path, b"ee\n");
        let mut second = Follower::new(&path, Start::At(position.clone()));
        assert_eq!(look(&mut second), ["three"]);
    }

    /// RG-4.
    #[test]
    fn a_file_rotated_while_the_reader_was_away_is_read_to_its_end_where_it_still_lies() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"one\ntwo\n");
        let mut first = Follower::new(&path, Start::Beginning);
        assert_eq!(look(&mut first).len(), 2);
        let position = first.position().unwrap().to_string();
        append(&path, b"three\n");
        fs::rename(&path, dir.path().join("log.1")).unwrap();
        append(&path, b"new\n");
        let mut second = Follower::new(&path, Start::At(position.clone()));
        assert_eq!(look(&mut second), ["three", "new"]);
        // Shorter than what was read of it: that one is not the file any more.
        fs::write(dir.path().join("log.1"), b"").unwrap();
        let mut third = Follower::new(&path, Start::At(position));
        let seen = look(&mut third);
        assert!(seen[0].contains("rotated while the agent was away"), "{seen:?}");
        assert_eq!(seen[1], "new");
    }

    #[test]
    fn a_last_line_without_a_newline_is_handed_out_when_it_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"Segmentation fault");
        let mut follower = Follower::new(&path, Start::Beginning);
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert!(look_at(&mut follower, start).is_empty());
        append(&path, b" (core");
        assert!(look_at(&mut follower, after(400)).is_empty());
        assert!(look_at(&mut follower, after(800)).is_empty());
        assert_eq!(look_at(&mut follower, after(900)), ["Segmentation fault (core"]);
        append(&path, b" dumped)\n");
        assert_eq!(look_at(&mut follower, after(950)), [" dumped)"]);
    }

    #[test]
    fn a_successor_is_found_within_a_second_although_nothing_is_written_into_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"one\n");
        let mut follower = Follower::new(&path, Start::Beginning);
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(look_at(&mut follower, start), ["one"]);
        append(&path, b"two\n");
        assert_eq!(look_at(&mut follower, after(10)), ["two"]);
        fs::rename(&path, dir.path().join("log.1")).unwrap();
        append(&path, b"three\n");
        assert!(look_at(&mut follower, after(500)).is_empty());
        append(&dir.path().join("log.1"), b"last words\n");
        assert_eq!(look_at(&mut follower, after(1010)), ["last words", "three"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said_once_and_read_when_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        // A link to itself is refused to every user, root included.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let mut follower = Follower::new(&path, Start::Beginning);
        let seen = look(&mut follower);
        assert!(seen.len() == 1 && seen[0].starts_with("!cannot read"), "{seen:?}");
        assert!(look(&mut follower).is_empty());
        fs::remove_file(&path).unwrap();
        append(&path, b"two\n");
        assert_eq!(look(&mut follower), ["two"]);
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
