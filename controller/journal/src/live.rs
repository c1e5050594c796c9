//! A journal read while its controller writes it: without a lock, without a write.
//!
//! Entries never change, and the tree of a commit is proven page by page. Where the writer has given a page away in the
//! meantime, reading goes on in the tree of the newest commit behind the entry that was read last, so that one reading
//! may see parts of several commits and yet every entry once, in order. It ends with the entry that was the last when it
//! began: a cluster that never rests is read in bounded time.

use std::io;
use std::path::Path;
use std::time::Duration;

use rankguard_core::Policy;

use crate::order::Order;
use crate::overlay::Overlay;
use crate::pages::{Commit, Link, Pages, Stop};
use crate::read::{Snapshot, begins_with, decoded};
use crate::snapshot::{PARTS, RECORDS, SnapshotRecord, parse_record};
use crate::{EVENTS, JournalError, META, Take, policy_of};
use redb::TableHandle;

/// Width of an entry's number.
const NUMBER: usize = 8;
/// How often a tree that does not hold is tried again while no commit came: a writer is between two writes for less.
const TRIES: u32 = 200;
/// How long to wait for those two writes.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a newer commit may come before a single further entry was read.
const OVERTAKEN: u32 = 10_000;

/// What reading ended with, beside the reader's own errors.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Its pages are not what they were written as: it needs repair, or is no journal.
    Damaged,
    /// The file cannot be read.
    Io(io::Error),
    /// The reader wants no more, or the journal is of another version.
    Journal(JournalError),
}

impl From<Stop<JournalError>> for Failed {
    fn from(stop: Stop<JournalError>) -> Self {
        match stop {
            Stop::Changed => Self::Damaged,
            Stop::Io(problem) => Self::Io(problem),
            Stop::Taken(problem) => Self::Journal(problem),
        }
    }
}

/// A journal of which nobody is asked for leave.
pub(crate) struct Live {
    pages: Pages,
    holder: Holder,
}

/// Who has a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody: it was closed.
    Closed,
    /// A controller, which goes on writing.
    InUse,
    /// Nobody: the controller that had it was killed, or its machine went down.
    Left,
}

impl Live {
    /// Opens a journal; nothing where the file is none.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let Some(pages) = Pages::open(path)? else {
            return Ok(None);
        };
        // One that was closed is in nobody's use, and is not locked for a moment to learn it.
        let holder = match pages.not_closed()? {
            false => Holder::Closed,
            true if Overlay::open(path)?.is_none() => Holder::InUse,
            true => Holder::Left,
        };
        Ok(Some(Self { pages, holder }))
    }

    pub(crate) fn holder(&self) -> Holder {
        self.holder
    }

    /// Whether it has the table of a journal.
    pub(crate) fn has_meta(&self) -> Result<bool, Failed> {
        self.again(|commit| Ok(self.pages.table::<JournalError>(commit.tables, META.name())?.is_some()))
    }

    /// The policy it was begun with.
    pub(crate) fn policy(&self, path: &Path) -> Result<Policy, Failed> {
        let meta = self.again(|commit| {
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
            return Err(Failed::Damaged);
        };
        let text = |name: &str| {
            let found = meta.iter().find(|(key, _)| key == name.as_bytes());
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        policy_of(path, text).map_err(Failed::Journal)
    }

    /// The oldest snapshot of which all later entries are held; none in a journal that holds all its entries. One that cannot
    /// be used is a problem, and the next one is taken.
    pub(crate) fn oldest_snapshot(&self, path: &Path, take: Take<'_>) -> Result<Option<Snapshot>, Failed> {
        let mut after = 0;
        loop {
            let found = self.again(|commit| self.snapshot_behind(commit, after))?;
            let Some((record, bytes)) = found else { return Ok(None) };
            after = record.serial;
            match decoded(path, record, &bytes) {
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(problem) => take(Err(problem)).map_err(Failed::Journal)?,
            }
        }
    }

    /// The first snapshot behind a serial number with which reading may begin, and its bytes.
    fn snapshot_behind(
        &self,
        commit: Commit,
        after: u64,
    ) -> Result<Option<(SnapshotRecord, Vec<u8>)>, Stop<JournalError>> {
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

    /// The number of a commit's first entry, where it has one.
    fn first(&self, commit: Commit) -> Result<Option<u64>, Stop<JournalError>> {
        let Some(root) = self.pages.table(commit.tables, EVENTS.name())? else {
            return Ok(None);
        };
        let mut first = None;
        let found = self.pages.walk(root, Some(NUMBER), &|_| false, &mut |key, _| {
            first = number(key);
            // The walk ends here; the reason is never seen.
            Err(())
        });
        match found {
            Ok(()) | Err(Stop::Taken(())) => Ok(first),
            Err(Stop::Changed) => Err(Stop::Changed),
            Err(Stop::Io(problem)) => Err(Stop::Io(problem)),
        }
    }

    /// Reads every page of the newest commit: what is proven here can be read, as long as nobody writes.
    pub(crate) fn prove(&self) -> Result<(), Failed> {
        let commit = self.pages.commit::<JournalError>()?;
        for table in [EVENTS.name(), RECORDS.name(), PARTS.name()] {
            if let Some(root) = self.pages.table::<JournalError>(commit.tables, table)? {
                self.pages
                    .walk::<JournalError>(root, Some(NUMBER), &|_| false, &mut |_, _| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Gives the entries to `order`, from the one that it wants next to the one that is the last now.
    pub(crate) fn events(&self, order: &mut Order<'_>) -> Result<(), Failed> {
        let last = self.again(|commit| self.last(commit))?;
        let mut at = order.next();
        let mut overtaken = 0;
        while order.next() <= last {
            let read = self.again(|commit| {
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
                    // What was read before the writer went on counts.
                    Err(Stop::Changed) if order.next() > from => Ok(false),
                    other => other.map(|()| true),
                }
            })?;
            if read {
                break;
            }
            overtaken = if order.next() > at { 0 } else { overtaken + 1 };
            at = order.next();
            if overtaken > OVERTAKEN {
                return Err(Failed::Damaged);
            }
        }
        Ok(())
    }

    /// The number of a commit's last entry; 0 where it has none.
    fn last(&self, commit: Commit) -> Result<u64, Stop<JournalError>> {
        let mut last = 0;
        let root: Option<Link> = self.pages.table(commit.tables, EVENTS.name())?;
        if let Some(root) = root {
            // No branch but the last one is looked into.
            self.pages.walk(root, Some(NUMBER), &|_| true, &mut |key, _| {
                last = number(key).unwrap_or(last);
                Ok(())
            })?;
        }
        Ok(last)
    }

    /// Reads something of the newest commit, and again where a page no longer is what the commit named.
    fn again<T>(&self, mut read: impl FnMut(Commit) -> Result<T, Stop<JournalError>>) -> Result<T, Failed> {
        let (mut tries, mut seen) = (0, None);
        loop {
            let commit = self.pages.commit();
            let number = commit.as_ref().ok().map(|commit| commit.number);
            match commit.and_then(&mut read) {
                Err(Stop::Changed) if tries < TRIES && self.holder == Holder::InUse => {
                    // The file tells nobody that a commit is whole: looking again is all there is.
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
