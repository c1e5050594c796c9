//! Following one file as it grows, is rotated, is truncated or cannot be read.
//!
//! An unfinished last line is handed out when nothing is added to it for a while ([`Lines`]), and when the file is finished or
//! rotated away. Not seen: a file that is truncated and grows beyond its old length between two looks; what is written to a
//! renamed file after its successor was opened.

mod lines;
mod opened;

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

use super::stirs::Stirs;
use lines::Lines;
use opened::{Open, open, renamed};

/// Most bytes read at one look, so that one noisy file cannot starve the others.
const LOOK_BYTES_MAX: usize = 4 << 20;

/// Most looks when a file is finished: who writes faster than it is read cannot hold up the end of the agent.
const FINISH_LOOKS_MAX: u32 = 16;

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

impl Place {
    /// Behind the last byte of a file.
    pub(crate) fn end(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            offset: about.len(),
        }
    }
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
    /// What watches the open file, where that can be.
    stirs: Option<Stirs>,
    open: Option<Open>,
    lines: Lines,
    /// When it was last looked at whether the open file is still the one of this name.
    checked: Option<Instant>,
    /// The last problem with opening or reading; told once until it changes.
    complaint: Option<String>,
}

impl Follower {
    pub(crate) fn new(path: impl Into<PathBuf>, start: Start) -> Self {
        Self {
            path: path.into(),
            start: Some(start),
            stirs: None,
            open: None,
            lines: Lines::default(),
            checked: None,
            complaint: None,
        }
    }

    /// Has the kernel tell when the file is written to. Whoever looks hears `stirs` before.
    pub(crate) fn watched_by(mut self, stirs: &Stirs) -> Self {
        self.stirs = Some(stirs.clone());
        self
    }

    /// Whether the kernel tells when the file is written to.
    pub(crate) fn is_watched(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.stir.is_some())
    }

    /// Whether a look would find nothing.
    pub(crate) fn is_still(&self, now: Instant) -> bool {
        self.lines.held() == 0 && self.is_unchanged(now)
    }

    /// Where the next unread line begins, for [`Start::At`]. None before the file was there.
    pub(crate) fn position(&self) -> Option<Place> {
        let open = self.open.as_ref()?;
        Some(open.place(open.offset - self.lines.held()))
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
        let before = self.open.as_mut().map(|open| {
            if let Some(stir) = &mut open.stir {
                stir.settle();
            }
            open.offset
        });
        if self.read_on(now, out) {
            // There is more to read before the end: what became of the file can wait.
            return false;
        }
        // One that grows was not truncated, and one that is watched was not rotated.
        let grows = |open: &Open| open.stir.is_some() && Some(open.offset) > before && self.is_trusted(open, now);
        if self.open.as_ref().is_some_and(grows) {
            return true;
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
        self.is_trusted(open, now) && open.is_read()
    }

    /// Whether it was looked at not long ago that the open file is the one of this name.
    fn is_trusted(&self, open: &Open, now: Instant) -> bool {
        let fresh = |checked: Instant| now.saturating_duration_since(checked) < open.trusted();
        self.checked.is_some_and(fresh)
    }

    fn flush_idle(&mut self, now: Instant, out: &mut Vec<Seen>) {
        if self.lines.is_idle(now) {
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
        let stir = self.stirs.as_ref().and_then(|stirs| stirs.watch(&file));
        self.open = Some(Open {
            stir,
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
                    let begins = open.offset;
                    open.offset += count as u64;
                    let seen = |text, offset| {
                        out.push(Seen::Line {
                            text,
                            at: open.place(offset),
                        })
                    };
                    self.lines.take(&buffer[..count], begins, now, seen);
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
                    self.lines = Lines::default();
                    self.open = None;
                    return false;
                }
            }
        }
    }

    /// Hands out an unfinished last line.
    fn flush_partial(&mut self, out: &mut Vec<Seen>) {
        // Lines come from files that are open.
        let Some(open) = &self.open else { return };
        if let Some((text, offset)) = self.lines.flush(open.offset) {
            out.push(Seen::Line {
                text,
                at: open.place(offset),
            });
        }
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
                self.lines = Lines::default();
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
                self.lines = Lines::default();
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

#[cfg(test)]
mod tests;
