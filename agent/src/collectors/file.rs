//! Follower of one file that grows, is rotated, is truncated or cannot be read.
//!
//! An unfinished last line is emitted when it has not grown for a while ([`LineBuffer`]), and when the file is finished or
//! rotated away. Not detected: a file that is truncated and grows beyond its old length between two polls, and bytes
//! that are written to a renamed file after its successor was opened.

mod lines;
mod opened;

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use super::inotify::InotifyWatcher;
use lines::LineBuffer;
use opened::{OpenFile, open, renamed};

/// Most bytes read in one poll, so that one noisy file cannot starve the others.
const LOOK_BYTES_MAX: usize = 4 << 20;

/// Most polls when a file is finished, so that a writer which is faster than the reader cannot delay the agent's end.
const FINISH_LOOKS_MAX: u32 = 16;

/// Result of a poll of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileEvent {
    /// Complete line, or an unfinished one that is flushed.
    Line {
        /// Text without its newline.
        text: String,
        /// Position of its first byte.
        at: FilePosition,
    },
    /// Loss or a read error (RG-4).
    Problem {
        /// Description and cause.
        what: String,
        /// Number of lost records; none if unknown.
        lost: Option<u64>,
    },
}

/// Position in a file, independent of the file's current name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilePosition {
    device: u64,
    inode: u64,
    offset: u64,
}

impl FilePosition {
    /// Returns the position behind the last byte of a file.
    pub(crate) fn end(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            offset: about.len(),
        }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.device, self.inode, self.offset)
    }
}

/// Start position in a file that exists at the first poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartPosition {
    /// First byte of the file.
    Beginning,
    /// End of the file, because its present content is of unknown age.
    End,
    /// Stored position of an earlier reader ([`FileFollower::position`]).
    At(String),
}

/// Incremental reader of one file.
#[derive(Debug)]
pub(crate) struct FileFollower {
    path: PathBuf,
    start: Option<StartPosition>,
    /// Inotify watcher for the open file; none if the file is only polled.
    stirs: Option<InotifyWatcher>,
    open: Option<OpenFile>,
    lines: LineBuffer,
    /// Time of the last check that the path still names the open file.
    checked: Option<Instant>,
    /// Last problem with opening or reading; reported once until it changes.
    complaint: Option<String>,
}

impl FileFollower {
    pub(crate) fn new(path: impl Into<PathBuf>, start: StartPosition) -> Self {
        Self {
            path: path.into(),
            start: Some(start),
            stirs: None,
            open: None,
            lines: LineBuffer::default(),
            checked: None,
            complaint: None,
        }
    }

    /// Watches the file with inotify. The caller must read the events of `stirs` before each poll.
    pub(crate) fn watched_by(mut self, stirs: &InotifyWatcher) -> Self {
        self.stirs = Some(stirs.clone());
        self
    }

    /// True if inotify reports writes to the file.
    pub(crate) fn is_watched(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.stir.is_some())
    }

    /// True if a poll would find nothing.
    pub(crate) fn is_still(&self, now: Instant) -> bool {
        self.lines.held() == 0 && self.is_unchanged(now)
    }

    /// Returns the position of the next unread line, for [`StartPosition::At`]. None before the file was first opened.
    pub(crate) fn position(&self) -> Option<FilePosition> {
        let open = self.open.as_ref()?;
        Some(open.place(open.offset - self.lines.held()))
    }

    /// Returns the time of the newest write to the open file, by the clock of its file system.
    pub(crate) fn written_at(&self) -> Option<SystemTime> {
        self.open.as_ref()?.file.metadata().ok()?.modified().ok()
    }

    /// Reads new data without blocking, at most [`LOOK_BYTES_MAX`] bytes. Returns true if the end was reached.
    pub(crate) fn poll(&mut self, now: Instant, out: &mut Vec<FileEvent>) -> bool {
        if self.open.is_none() && !self.try_open(out) {
            return true;
        }
        if self.is_unchanged(now) {
            self.flush_idle(now, out);
            return true;
        }
        let before = self.open.as_mut().map(|open| {
            if let Some(stir) = &mut open.stir {
                stir.mark_handled();
            }
            open.offset
        });
        if self.read_on(now, out) {
            // More data is left before the end, so that the identity check can wait.
            return false;
        }
        // A file that grows was not truncated, and a watched file was not rotated.
        let grows = |open: &OpenFile| open.stir.is_some() && Some(open.offset) > before && self.is_trusted(open, now);
        if self.open.as_ref().is_some_and(grows) {
            return true;
        }
        let ended = self.check_identity(now, out);
        self.checked = Some(now);
        self.flush_idle(now, out);
        ended
    }

    /// True if the open file has no new data and its identity was checked recently. Files are polled many times a
    /// second, and most polls find nothing.
    fn is_unchanged(&self, now: Instant) -> bool {
        let Some(open) = &self.open else { return false };
        self.is_trusted(open, now) && open.is_read()
    }

    /// True if the last identity check of the open file is recent enough.
    fn is_trusted(&self, open: &OpenFile, now: Instant) -> bool {
        let fresh = |checked: Instant| now.saturating_duration_since(checked) < open.trusted();
        self.checked.is_some_and(fresh)
    }

    fn flush_idle(&mut self, now: Instant, out: &mut Vec<FileEvent>) {
        if self.lines.is_idle(now) {
            self.flush_partial(out);
        }
    }

    /// Reads new data and emits an unfinished last line too, because the writer has ended.
    pub(crate) fn finish(&mut self, now: Instant, out: &mut Vec<FileEvent>) {
        self.checked = None;
        for _ in 0..FINISH_LOOKS_MAX {
            if self.poll(now, out) {
                break;
            }
        }
        self.flush_partial(out);
    }

    fn try_open(&mut self, out: &mut Vec<FileEvent>) -> bool {
        let (file, metadata) = match open(&self.path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A file that appears later is new from its first byte. The position of an earlier reader remains
                // valid.
                if self.start == Some(StartPosition::End) {
                    self.start = Some(StartPosition::Beginning);
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
        self.open = Some(OpenFile {
            stir,
            file,
            device: metadata.dev(),
            inode: metadata.ino(),
            offset,
        });
        true
    }

    /// Returns the file to begin with and the offset. The file differs from the one at the path if it was rotated while
    /// the agent was down and the renamed file is still in the same folder.
    fn first_offset(&mut self, file: File, metadata: Metadata, out: &mut Vec<FileEvent>) -> (File, Metadata, u64) {
        let mut problem = |what: String| out.push(FileEvent::Problem { what, lost: None });
        let path = self.path.display();
        let position = match self.start.take().unwrap_or(StartPosition::Beginning) {
            StartPosition::Beginning => return (file, metadata, 0),
            StartPosition::End => {
                let len = metadata.len();
                if len > 0 {
                    problem(format!(
                        "{path} was not read from before the agent's first start: {len} bytes of unknown age"
                    ));
                }
                return (file, metadata, len);
            }
            StartPosition::At(position) => position,
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

    /// Reads up to [`LOOK_BYTES_MAX`] bytes. Returns true if that limit was reached.
    fn read_on(&mut self, now: Instant, out: &mut Vec<FileEvent>) -> bool {
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
                        out.push(FileEvent::Line {
                            text,
                            at: open.place(offset),
                        })
                    };
                    self.lines.take(&buffer[..count], begins, now, seen);
                    if total >= LOOK_BYTES_MAX {
                        return true;
                    }
                    // Data behind a short read is read by the next poll.
                    if count < buffer.len() {
                        return false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.complain(format!("cannot read {}: {error}", self.path.display()), out);
                    // A later poll opens the file again and continues at the same position.
                    self.start = self.position().map(|place| StartPosition::At(place.to_string()));
                    self.lines = LineBuffer::default();
                    self.open = None;
                    return false;
                }
            }
        }
    }

    /// Emits an unfinished last line.
    fn flush_partial(&mut self, out: &mut Vec<FileEvent>) {
        // Only an open file has unfinished lines.
        let Some(open) = &self.open else { return };
        if let Some((text, offset)) = self.lines.flush(open.offset) {
            out.push(FileEvent::Line {
                text,
                at: open.place(offset),
            });
        }
    }

    /// Handles rotation and truncation since the file was opened. Returns true if the end of the present file was
    /// reached.
    fn check_identity(&mut self, now: Instant, out: &mut Vec<FileEvent>) -> bool {
        let Some(open) = &mut self.open else { return true };
        match std::fs::metadata(&self.path) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) != (open.device, open.inode) => {
                // Rotated. The last lines may have been written between the read above and the rename.
                if self.read_on(now, out) {
                    return false;
                }
                self.flush_partial(out);
                self.lines = LineBuffer::default();
                self.open = None;
                self.start = Some(StartPosition::Beginning);
                !(self.try_open(out) && self.read_on(now, out))
            }
            Ok(metadata) if metadata.len() < open.offset => {
                let what = format!(
                    "{} was truncated from {} to {} bytes: lines between two looks may be lost",
                    self.path.display(),
                    open.offset,
                    metadata.len()
                );
                out.push(FileEvent::Problem { what, lost: None });
                open.offset = 0;
                let again = open.file.seek(SeekFrom::Start(0));
                self.lines = LineBuffer::default();
                !(again.is_ok() && self.read_on(now, out))
            }
            // Removed: the open file is read further, and its successor is opened when it appears.
            Ok(_) | Err(_) => true,
        }
    }

    fn complain(&mut self, what: String, out: &mut Vec<FileEvent>) {
        if self.complaint.as_ref() != Some(&what) {
            self.complaint = Some(what.clone());
            out.push(FileEvent::Problem { what, lost: None });
        }
    }
}

#[cfg(test)]
mod tests;
