//! Writer of the audit log.
//!
//! A change is two lines: the entry, which is on disk before the change is carried out, and its result. Files begin anew at
//! [`FILE_BYTES`]; old files are removed whole, and an entry `audit.drop` states which.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rankguard_model::Timestamp;

use super::entry::{AuditDoor, AuditEntry, AuditFilter, AuditOutcome, NewAuditEntry, cut};
use super::file::{self, AuditFileContents, AuditLine, VERSION};
use super::reader::{self, AuditPage};
use crate::digest::{Digest, hex};

/// Size at which a new file begins, bytes.
const FILE_BYTES: u64 = 4 << 20;
/// Most files, 64 MiB together.
const FILES_MAX: usize = 16;
/// Time for which entries are retained at least in part; a file is removed when all of its entries are older.
const RETENTION: Duration = Duration::from_secs(400 * 86_400);
const FILE_MODE: u32 = 0o600;
/// Bytes of a trial write: those of a line with long texts.
const PROBE_BYTES: usize = 8 << 10;

/// Failure of the audit log.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the audit log {}: {source}", path.display())]
pub struct AuditError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Entry of which the result is not recorded yet.
#[derive(Debug)]
#[must_use = "the result of the change is recorded with it"]
pub struct AuditTicket {
    /// Number of the entry.
    pub seq: u64,
}

/// Audit log of a state directory; clones share it. All methods block on the disk.
#[derive(Debug, Clone)]
pub struct AuditLog {
    dir: PathBuf,
    writer: Arc<Mutex<AuditWriter>>,
    /// Failure of the latest write; none while the log can be written. Not held while a line is written.
    failure: Arc<Mutex<Option<String>>>,
}

/// Open file with the end of its chain.
#[derive(Debug)]
struct AuditWriter {
    dir: PathBuf,
    number: u64,
    path: PathBuf,
    file: File,
    /// Bytes of whole lines; what follows was cut off by a failed write.
    size: u64,
    digest: Digest,
    /// Number of the next entry.
    next: u64,
    /// Size at which a new file begins, bytes.
    file_bytes: u64,
}

impl AuditLog {
    /// Opens the log of a state directory. The rest of a write that a crash cut off is removed. A damaged file is left as
    /// it is: a new one begins, with an entry that names the damage.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, AuditError> {
        Self::with_file_bytes(dir, now, FILE_BYTES)
    }

    /// Opens the log with another size of its files.
    pub(crate) fn with_file_bytes(dir: &Path, now: Timestamp, file_bytes: u64) -> Result<Self, AuditError> {
        let writer = AuditWriter::open(dir, now, file_bytes)?;
        Ok(Self {
            dir: dir.to_owned(),
            writer: Arc::new(Mutex::new(writer)),
            failure: Arc::default(),
        })
    }

    /// Records a change before it is carried out.
    pub fn begin(&self, entry: NewAuditEntry, now: Timestamp) -> Result<AuditTicket, AuditError> {
        let seq = self.add(entry, now, AuditOutcome::Unknown, "")?;
        Ok(AuditTicket { seq })
    }

    /// Records the result of a change.
    pub fn end(&self, ticket: AuditTicket, outcome: AuditOutcome, message: &str) -> Result<(), AuditError> {
        let AuditTicket { seq: of } = ticket;
        let message = cut(message);
        let written = self.writer().append(&AuditLine::End { of, outcome, message });
        self.note(written)
    }

    /// Records a change that was refused.
    pub fn refuse(&self, entry: NewAuditEntry, message: &str, now: Timestamp) -> Result<u64, AuditError> {
        self.add(entry, now, AuditOutcome::Refused, message)
    }

    /// Reads the newest entries that a filter selects, newest first: those before the entry `before`, at most `limit`.
    pub fn read(&self, filter: &AuditFilter, before: Option<u64>, limit: usize) -> Result<AuditPage, AuditError> {
        reader::read(&self.dir, filter, before, limit).map_err(|source| AuditError {
            what: "read",
            path: self.dir.clone(),
            source,
        })
    }

    fn add(
        &self,
        entry: NewAuditEntry,
        now: Timestamp,
        outcome: AuditOutcome,
        message: &str,
    ) -> Result<u64, AuditError> {
        let written = {
            let mut writer = self.writer();
            let rotated = writer.rotate_if_full(now);
            rotated.and_then(|()| writer.add(entry, now, outcome, message))
        };
        self.note(written)
    }

    /// Returns the cause for which the latest write failed; `None` while the log can be written.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tries whether the log can be written again, without an entry. Blocks on the disk.
    pub fn probe(&self, now: Timestamp) -> Result<(), AuditError> {
        let probed = {
            let mut writer = self.writer();
            let rotated = writer.rotate_if_full(now);
            rotated.and_then(|()| writer.probe())
        };
        self.note(probed)
    }

    /// Remembers the outcome of a write.
    fn note<T>(&self, written: Result<T, AuditError>) -> Result<T, AuditError> {
        let failure = written.as_ref().err().map(AuditError::to_string);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        written
    }

    fn writer(&self) -> MutexGuard<'_, AuditWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditWriter {
    fn open(dir: &Path, now: Timestamp, file_bytes: u64) -> Result<Self, AuditError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| AuditError { what, path, source }
        };
        let files = file::list(dir).map_err(failed("list", dir))?;
        let Some((number, path)) = files.last() else {
            return Self::create(dir, 1, (1, Digest::default()), now, file_bytes);
        };
        let contents = AuditFileContents::read(path);
        let contents = contents.map_err(failed("read", path))?;
        let is_begun = matches!(contents.lines.first(), Some(AuditLine::Header { .. }));
        if contents.damaged.is_empty() && is_begun {
            let file = OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(failed("open", path))?;
            let mut writer = Self {
                dir: dir.to_owned(),
                number: *number,
                path: path.clone(),
                file,
                size: contents.size,
                digest: contents.digest,
                next: contents.next(),
                file_bytes,
            };
            writer.drop_old(now)?;
            return Ok(writer);
        }
        let next = contents.next().max(next_of_earlier(&files));
        let mut writer = Self::create(dir, number + 1, (next, contents.digest), now, file_bytes)?;
        let lines: Vec<String> = contents.damaged.iter().take(20).map(usize::to_string).collect();
        let detail = format!("line {} of {} cannot be verified", lines.join(", "), path.display());
        tracing::error!("{detail}; the audit log continues in {}", writer.path.display());
        writer.add(own_entry("audit.damage", detail), now, AuditOutcome::Done, "")?;
        Ok(writer)
    }

    /// Begins a file after a chain with the last digest `previous`; `next` is the number of its first entry.
    fn create(
        dir: &Path,
        number: u64,
        (next, previous): (u64, Digest),
        now: Timestamp,
        file_bytes: u64,
    ) -> Result<Self, AuditError> {
        let path = file::path(dir, number);
        // A file without a header is what an attempt on a full disk has left.
        if fs::symlink_metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0) {
            let _ = fs::remove_file(&path);
        }
        let created = rankguard_files::private::create_file(&path, FILE_MODE);
        let file = created.map_err(|source| AuditError {
            what: "create",
            path: path.clone(),
            source,
        })?;
        let mut writer = Self {
            dir: dir.to_owned(),
            number,
            path,
            file,
            size: 0,
            digest: Digest::default(),
            next,
            file_bytes,
        };
        let header = AuditLine::Header {
            version: VERSION,
            next,
            at: now,
            previous: if number == 1 { String::new() } else { hex(&previous) },
        };
        let written = writer.append(&header).and_then(|()| writer.sync_dir());
        written.inspect_err(|_| {
            let _ = fs::remove_file(&writer.path);
        })?;
        Ok(writer)
    }

    fn sync_dir(&self) -> Result<(), AuditError> {
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| self.failed("sync", source))
    }

    fn failed(&self, what: &'static str, source: io::Error) -> AuditError {
        AuditError {
            what,
            path: self.path.clone(),
            source,
        }
    }

    fn add(
        &mut self,
        entry: NewAuditEntry,
        now: Timestamp,
        outcome: AuditOutcome,
        message: &str,
    ) -> Result<u64, AuditError> {
        let seq = self.next;
        let entry = AuditEntry::new(entry, seq, now, outcome, message);
        self.append(&AuditLine::Entry(entry))?;
        self.next += 1;
        Ok(seq)
    }

    /// Appends a line; it is on disk when this returns. The next line overwrites what a failed write has left.
    fn append(&mut self, line: &AuditLine) -> Result<(), AuditError> {
        let (text, digest) = line
            .write(&self.digest)
            .map_err(|problem| self.failed("write", problem.into()))?;
        let mut written = || {
            self.file.set_len(self.size)?;
            self.file.seek(SeekFrom::Start(self.size))?;
            self.file.write_all(text.as_bytes())?;
            self.file.sync_data()
        };
        written().map_err(|source| self.failed("write", source))?;
        self.size += text.len() as u64;
        self.digest = digest;
        Ok(())
    }

    /// Writes as many bytes as a long line has, which are no line, and removes them.
    fn probe(&mut self) -> Result<(), AuditError> {
        let mut probed = || {
            self.file.set_len(self.size)?;
            self.file.seek(SeekFrom::Start(self.size))?;
            self.file.write_all(&[b' '; PROBE_BYTES])?;
            self.file.sync_data()?;
            self.file.set_len(self.size)
        };
        probed().map_err(|source| self.failed("write", source))
    }

    fn rotate_if_full(&mut self, now: Timestamp) -> Result<(), AuditError> {
        if self.size < self.file_bytes {
            return Ok(());
        }
        // A line that a failed write has left is no part of the chain.
        let trimmed = self.file.set_len(self.size);
        trimmed.map_err(|source| self.failed("trim", source))?;
        *self = Self::create(
            &self.dir,
            self.number + 1,
            (self.next, self.digest),
            now,
            self.file_bytes,
        )?;
        self.drop_old(now)
    }

    /// Removes files beyond the limits, and records which entries went with them.
    fn drop_old(&mut self, now: Timestamp) -> Result<(), AuditError> {
        let files = file::list(&self.dir).map_err(|source| self.failed("list", source))?;
        let mut removed = 0_usize;
        let mut first_left = None;
        // The header of the file after it has the time of its newest entry.
        for pair in files.windows(2) {
            let [(_, path), (_, after)] = pair else { continue };
            let Some((next, at)) = header(after) else { break };
            let is_beyond = files.len() - removed > FILES_MAX;
            if !is_beyond && now.since(at) < RETENTION {
                break;
            }
            fs::remove_file(path).map_err(|source| self.failed("remove an old file of", source))?;
            removed += 1;
            first_left = Some((next, at));
        }
        let Some((next, at)) = first_left else { return Ok(()) };
        let detail = format!("removed {removed} old file(s): entries before number {next}, until {at}");
        self.add(own_entry("audit.drop", detail), now, AuditOutcome::Done, "")?;
        Ok(())
    }
}

/// Returns the highest number that the headers of the files state.
fn next_of_earlier(files: &[(u64, PathBuf)]) -> u64 {
    let nexts = files.iter().filter_map(|(_, path)| header(path));
    nexts.map(|(next, _)| next).max().unwrap_or(1)
}

/// Returns the number of the first entry of a file, and the time at which it was begun.
fn header(path: &Path) -> Option<(u64, Timestamp)> {
    match AuditFileContents::read(path).ok()?.lines.first()? {
        AuditLine::Header { next, at, .. } => Some((*next, *at)),
        _ => None,
    }
}

fn own_entry(action: &str, detail: String) -> NewAuditEntry {
    NewAuditEntry {
        actor: "controller".to_owned(),
        door: AuditDoor::Controller,
        address: None,
        action: action.to_owned(),
        target: String::new(),
        detail,
        key: None,
    }
}

#[cfg(test)]
mod tests;
