//! Lock-free reader of a journal that its controller may be writing.
//!
//! Entries never change, and the tree of a commit is verified page by page. If the writer reused a page meanwhile,
//! reading continues in the tree of the newest commit after the entry that was read last, so that one pass may read
//! parts of several commits and yet every entry once, in order. It ends with the entry that was the last at its start,
//! so that a busy cluster is read in bounded time.

use std::io;
use std::path::Path;
use std::time::Duration;

use rankguard_core::Policy;

use crate::order::EntrySequencer;
use crate::overlay::OverlayFile;
use crate::pages::{PageCommit, PageFile, PageLink, WalkStop};
use crate::read::{LoadedSnapshot, begins_with, decoded};
use crate::snapshot::{PARTS, RECORDS, SnapshotRecord, parse_record};
use crate::{EVENTS, EntryCallback, JournalError, META, policy_of};
use redb::TableHandle;

/// Width of an entry number, bytes.
const NUMBER: usize = 8;
/// Retries of an inconsistent tree while no new commit appears; a writer is between two writes for less time.
const TRIES: u32 = 200;
/// Pause between retries.
const PAUSE: Duration = Duration::from_millis(1);
/// Newer commits that may appear before one further entry was read.
const OVERTAKEN: u32 = 10_000;

/// Error of a read, in addition to errors of the callback.
#[derive(Debug)]
pub(crate) enum LiveReadError {
    /// Pages do not match their checksums: the file needs repair, or is no journal.
    Damaged,
    /// The file cannot be read.
    Io(io::Error),
    /// The callback ended the read, or the journal has another version.
    Journal(JournalError),
}

impl From<WalkStop<JournalError>> for LiveReadError {
    fn from(stop: WalkStop<JournalError>) -> Self {
        match stop {
            WalkStop::Changed => Self::Damaged,
            WalkStop::Io(problem) => Self::Io(problem),
            WalkStop::Taken(problem) => Self::Journal(problem),
        }
    }
}

/// Journal opened without a lock.
pub(crate) struct LiveJournal {
    pages: PageFile,
    holder: WriterState,
}

/// Process state of a journal's writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterState {
    /// No writer: the journal was closed.
    Closed,
    /// A controller has it open and continues to write.
    InUse,
    /// No writer: the controller was killed, or its machine failed.
    Left,
}

impl LiveJournal {
    /// Opens a journal; returns `None` if the file is none.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let Some(pages) = PageFile::open(path)? else {
            return Ok(None);
        };
        // A closed journal has no writer, so its lock need not be tried.
        let holder = if !pages.not_closed()? {
            WriterState::Closed
        } else if OverlayFile::open(path)?.is_none() {
            WriterState::InUse
        } else {
            WriterState::Left
        };
        Ok(Some(Self { pages, holder }))
    }

    pub(crate) fn holder(&self) -> WriterState {
        self.holder
    }

    /// Returns true if the file has the `meta` table of a journal.
    pub(crate) fn has_meta(&self) -> Result<bool, LiveReadError> {
        self.retry_read(|commit| Ok(self.pages.table::<JournalError>(commit.tables, META.name())?.is_some()))
    }

    /// Returns the policy with which the journal began.
    pub(crate) fn policy(&self, path: &Path) -> Result<Policy, LiveReadError> {
        let meta = self.retry_read(|commit| {
            let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let Some(root) = self.pages.table(commit.tables, META.name())? else {
                return Ok(None);
            };
            self.pages
                .walk::<JournalError>(root, None, &|_| false, &mut |key, value| {
                    found.push((key.to_vec(), value.to_vec()));
                    Ok(())
                })?;
            Ok(Some(found))
        })?;
        let Some(meta) = meta else {
            return Err(LiveReadError::Damaged);
        };
        let text = |name: &str| {
            let found = meta.iter().find(|(key, _)| key == name.as_bytes());
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        policy_of(path, text).map_err(LiveReadError::Journal)
    }

    /// Returns the oldest snapshot with all later entries present; `None` if the journal holds all its entries. An
    /// unreadable snapshot is reported to `take`, and the next one is used.
    pub(crate) fn oldest_snapshot(
        &self,
        path: &Path,
        take: EntryCallback<'_>,
    ) -> Result<Option<LoadedSnapshot>, LiveReadError> {
        let mut after = 0;
        loop {
            let found = self.retry_read(|commit| self.snapshot_behind(commit, after))?;
            let Some((record, bytes)) = found else { return Ok(None) };
            after = record.serial;
            match decoded(path, record, &bytes) {
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(problem) => take(Err(problem)).map_err(LiveReadError::Journal)?,
            }
        }
    }

    /// Returns the first usable snapshot after a serial number, with its bytes.
    fn snapshot_behind(
        &self,
        commit: PageCommit,
        after: u64,
    ) -> Result<Option<(SnapshotRecord, Vec<u8>)>, WalkStop<JournalError>> {
        let first = self.first(commit)?;
        let mut record = None;
        if let Some(root) = self.pages.table(commit.tables, RECORDS.name())? {
            self.pages.walk(root, Some(NUMBER), &|_| false, &mut |_, value| {
                let wanted = |record: &SnapshotRecord| record.serial > after && begins_with(record, first);
                record = record.take().or(parse_record(value).filter(wanted));
                Ok(())
            })?;
        }
        let Some(record) = record else { return Ok(None) };
        let keys = record.keys();
        let mut bytes = Vec::new();
        if let Some(root) = self.pages.table(commit.tables, PARTS.name())? {
            let before = |key: &[u8]| number(key).is_some_and(|key| key < keys.start);
            self.pages.walk(root, Some(NUMBER), &before, &mut |key, value| {
                if number(key).is_some_and(|key| keys.contains(&key)) {
                    bytes.extend_from_slice(value);
                }
                Ok(())
            })?;
        }
        Ok(Some((record, bytes)))
    }

    /// Returns the number of a commit's first entry.
    fn first(&self, commit: PageCommit) -> Result<Option<u64>, WalkStop<JournalError>> {
        let Some(root) = self.pages.table(commit.tables, EVENTS.name())? else {
            return Ok(None);
        };
        let mut first = None;
        let found = self.pages.walk(root, Some(NUMBER), &|_| false, &mut |key, _| {
            first = number(key);
            // Ends the walk after the first key; the error is discarded.
            Err(())
        });
        match found {
            Ok(()) | Err(WalkStop::Taken(())) => Ok(first),
            Err(WalkStop::Changed) => Err(WalkStop::Changed),
            Err(WalkStop::Io(problem)) => Err(WalkStop::Io(problem)),
        }
    }

    /// Verifies every page of the newest commit; the result holds while there is no writer.
    pub(crate) fn verify_pages(&self) -> Result<(), LiveReadError> {
        let commit = self.pages.commit::<JournalError>()?;
        for table in [EVENTS.name(), RECORDS.name(), PARTS.name()] {
            if let Some(root) = self.pages.table::<JournalError>(commit.tables, table)? {
                self.pages
                    .walk::<JournalError>(root, Some(NUMBER), &|_| false, &mut |_, _| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Passes the entries to `order`, from the next expected one to the one that is the last now.
    pub(crate) fn events(&self, order: &mut EntrySequencer<'_>) -> Result<(), LiveReadError> {
        let last = self.retry_read(|commit| self.last(commit))?;
        let mut at = order.next();
        let mut overtaken = 0;
        while order.next() <= last {
            let read = self.retry_read(|commit| {
                let Some(root) = self.pages.table(commit.tables, EVENTS.name())? else {
                    return Ok(true);
                };
                let from = order.next();
                let is_read = |key: &[u8]| number(key).is_some_and(|key| key < from);
                let walked = self
                    .pages
                    .walk(root, Some(NUMBER), &is_read, &mut |key, value| match number(key) {
                        Some(number) if (from..=last).contains(&number) => order.entry(number, value),
                        _ => Ok(()),
                    });
                match walked {
                    // Entries read before the writer changed the page count.
                    Err(WalkStop::Changed) if order.next() > from => Ok(false),
                    other => other.map(|()| true),
                }
            })?;
            if read {
                break;
            }
            overtaken = if order.next() > at { 0 } else { overtaken + 1 };
            at = order.next();
            if overtaken > OVERTAKEN {
                return Err(LiveReadError::Damaged);
            }
        }
        Ok(())
    }

    /// Returns the number of a commit's last entry; 0 if it has none.
    fn last(&self, commit: PageCommit) -> Result<u64, WalkStop<JournalError>> {
        let mut last = 0;
        let root: Option<PageLink> = self.pages.table(commit.tables, EVENTS.name())?;
        if let Some(root) = root {
            // Only the last branch is visited.
            self.pages.walk(root, Some(NUMBER), &|_| true, &mut |key, _| {
                last = number(key).unwrap_or(last);
                Ok(())
            })?;
        }
        Ok(last)
    }

    /// Reads from the newest commit, and retries while pages no longer match it.
    fn retry_read<T>(
        &self,
        mut read: impl FnMut(PageCommit) -> Result<T, WalkStop<JournalError>>,
    ) -> Result<T, LiveReadError> {
        let mut tries = 0;
        let mut seen = None;
        loop {
            let commit = self.pages.commit();
            let number = commit.as_ref().ok().map(|commit| commit.number);
            match commit.and_then(&mut read) {
                Err(WalkStop::Changed) if tries < TRIES && self.holder == WriterState::InUse => {
                    // The file gives no signal for a complete commit, so it is polled.
                    if seen == number {
                        tries += 1;
                        std::thread::sleep(PAUSE);
                    }
                    seen = number;
                }
                other => return Ok(other?),
            }
        }
    }
}

fn number(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_le_bytes)
}
