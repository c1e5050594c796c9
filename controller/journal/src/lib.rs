//! Journal: all events of the decision core, in order, on disk.
//!
//! One redb file. Table `events`: entry number, counted from 1 without gaps, to a [`StampedEvent`] as JSON. Table
//! `meta`: the format version and the policy under which the events were decided. A commit is synced before
//! [`Journal::append`] returns; a process or machine that dies in between leaves the journal at its last complete
//! commit.
//!
//! Snapshots of the state ([`encode_snapshot`], [`Journal::store_slice`]) permit the removal of the oldest entries
//! ([`Journal::trim`], [`JournalRetention`]). A start reads the newest readable snapshot and replays the entries after
//! it. Readers begin with entry 1, or with the oldest snapshot if entries were removed. Snapshots are written and
//! entries removed in slices between commits, so that no commit waits for them. A journal with removed entries has
//! format 2, which programs without snapshot support refuse; format 1 is still read.
//!
//! The file is locked while a [`Journal`] is open, so a second controller on it is refused. Readers ([`scan`],
//! [`read()`], [`analyse_journal`]) never write to it, not even to repair a journal of a controller that was killed.
//! They also read it while its controller continues: up to the entry that was the last when they began ([`in_use`]
//! shows that more may follow).
//!
//! [`analyse_journal`] replays the events through the decision core and derives records: jobs and their attempts, nodes
//! and their availability, failures, evidence. It adds no values that the journal lacks.

mod analysis;
mod error;
mod live;
mod order;
mod overlay;
mod pages;
mod read;
mod retention;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rankguard_core::{Policy, StampedEvent};
use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, TableDefinition};
use snapshot::SnapshotRecord;

pub use analysis::{
    EventRecord, EvidenceRecord, FailureRecord, JobAttempt, JobRecord, JournalRecord, JournalSummary, MetricSample,
    NodeRecord, StateInterval, analyse_journal,
};
pub use error::JournalError;
use order::EntrySequencer;
pub use read::{
    JournalHistory, JournalStart, RecordedJournal, ReplayResult, cases, evidence, history, in_use, is_journal, policy,
    read, scan, scan_from,
};
pub use retention::JournalRetention;
pub use snapshot::{EncodedSnapshot, SnapshotError, encode_snapshot};
pub use store::RestoredState;

/// Name of the journal file in the state directory.
pub const JOURNAL_FILE: &str = "journal.redb";

/// Format of a journal that contains all entries.
const VERSION: u32 = 1;
/// Format of a journal with a snapshot in place of removed entries.
const VERSION_COMPACTED: u32 = 2;
/// Table of entries as JSON, by entry number.
const EVENTS: TableDefinition<u64, &[u8]> = TableDefinition::new("events");
/// Table of the format version (decimal digits) and the policy (JSON), by name.
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const META_VERSION: &str = "version";
const META_POLICY: &str = "policy";

/// Page cache of the database, bytes; small, because a journal is written once and read once.
const CACHE_BYTES: usize = 16 << 20;

/// Journal that this process has open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    database: Database,
    policy: Policy,
    /// Number of the last entry; 0 without one.
    entries: u64,
    /// Number of the first entry that is present; `entries` + 1 without one.
    first: u64,
    /// Snapshots, oldest first.
    snapshots: Vec<SnapshotRecord>,
    /// Bytes of all entries ever appended; without those after the newest snapshot until [`Journal::restore`] or
    /// [`Journal::resume`] is called.
    entry_bytes: u64,
}

/// Encodes an event as a journal entry. Fails if the event has no JSON form.
pub fn encode(stamped: &StampedEvent) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(stamped)
}

/// Decodes a journal entry. Fails if the entry is no JSON, or not an event that this program knows.
pub fn decode(entry: &[u8]) -> Result<StampedEvent, serde_json::Error> {
    serde_json::from_slice(entry)
}

impl Journal {
    /// Opens the journal file `path`, or creates it under this policy. An existing one retains the policy with which it
    /// began: see [`Journal::policy`]. Fails if another process has it open, if the file is no journal or has an
    /// unknown format, and on I/O errors.
    pub fn open(path: &Path, policy: &Policy) -> Result<Self, JournalError> {
        let path = path.to_owned();
        if !path.exists() {
            begin(&path, policy)?;
        }
        let database = guarded(&path, || builder().open(&path))?;
        let mut journal = Self {
            path,
            database,
            policy: policy.clone(),
            entries: 0,
            first: 1,
            snapshots: Vec::new(),
            entry_bytes: 0,
        };
        let view = journal.view()?;
        journal.policy = read_meta(&view, &journal.path)?;
        let failed = |problem: redb::Error| storage("read", &journal.path, problem);
        let snapshots = snapshot::read_records(&view).map_err(failed)?;
        let held = held_entries(&view).map_err(failed)?;
        let newest = snapshots.last().map_or(0, |newest| newest.entry);
        (journal.first, journal.entries) = held.unwrap_or((newest + 1, newest));
        journal.entry_bytes = snapshots.last().map_or(0, |newest| newest.entry_bytes);
        journal.snapshots = snapshots;
        Ok(journal)
    }

    /// Returns the policy with which the journal began.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the number of events ever appended, which is the number of the last one.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the bytes of all entries ever appended, removed ones included. Correct only after [`Journal::restore`]
    /// or [`Journal::resume`].
    pub fn entry_bytes(&self) -> u64 {
        self.entry_bytes
    }

    /// Passes every event that is present to `take`, in order. Fails at the first entry that is missing or unreadable.
    pub fn replay(&self, mut take: impl FnMut(StampedEvent)) -> Result<(), JournalError> {
        let mut take = |entry: Result<StampedEvent, JournalError>| {
            take(entry?);
            Ok(())
        };
        read_events(
            &self.view()?,
            &self.path,
            &mut EntrySequencer::new(&self.path, self.first, &mut take),
        )
    }

    /// Appends entries made by [`encode`]: all of them or, on an error, none. They are synced to disk before this
    /// returns.
    pub fn append(&mut self, entries: &[Vec<u8>]) -> Result<(), JournalError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut table = transaction.open_table(EVENTS)?;
                for (number, entry) in (self.entries + 1..).zip(entries) {
                    table.insert(number, entry.as_slice())?;
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(|e| storage("write", &self.path, e))?;
        self.entries += entries.len() as u64;
        self.entry_bytes += entries.iter().map(|entry| entry.len() as u64).sum::<u64>();
        Ok(())
    }

    /// Begins a read of the newest commit.
    fn view(&self) -> Result<ReadTransaction, JournalError> {
        self.database.begin_read().map_err(|e| storage("read", &self.path, e))
    }
}

/// Creates a journal without events. The file is completed under a temporary name and then linked to `path`: a
/// controller that is killed meanwhile leaves no partial journal that the next one would refuse.
fn begin(path: &Path, policy: &Policy) -> Result<(), JournalError> {
    let policy = serde_json::to_vec(policy).map_err(|source| JournalError::Policy {
        path: path.to_owned(),
        source,
    })?;
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let write = || -> Result<(), redb::Error> {
        let draft = draft_name(dir)?;
        let database = builder().create(&draft)?;
        let transaction = database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_VERSION, VERSION.to_string().as_bytes())?;
            meta.insert(META_POLICY, policy.as_slice())?;
            transaction.open_table(EVENTS)?;
        }
        transaction.commit()?;
        drop(database);
        // Unlike a rename, a link does not replace the journal of a controller that started at the same time.
        match fs::hard_link(&draft, path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
            _ => fs::remove_file(&draft)?,
        }
        // The directory is synced, so that the file name survives a crash as well as the content.
        Ok(File::open(dir)?.sync_all()?)
    };
    write().map_err(|e| storage("begin", path, e))
}

/// Returns the temporary name of a new journal, unique to this process, after the removal of an old file of that name.
fn draft_name(dir: &Path) -> io::Result<PathBuf> {
    let draft = dir.join(format!(".{JOURNAL_FILE}.{}", std::process::id()));
    match fs::remove_file(&draft) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(draft),
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn storage(what: &'static str, path: &Path, source: impl Into<redb::Error>) -> JournalError {
    JournalError::Storage {
        what,
        path: path.to_owned(),
        source: Box::new(source.into()),
    }
}

/// Opens a database with arbitrary content, and converts the error: the file is in use, cannot be read, or is no
/// journal.
fn guarded<T>(path: &Path, open: impl FnOnce() -> Result<T, DatabaseError>) -> Result<T, JournalError> {
    let not_a_journal = |source: Box<dyn std::error::Error + Send + Sync>| JournalError::NotAJournal {
        path: path.to_owned(),
        source,
    };
    open().map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => JournalError::InUse { path: path.to_owned() },
        // redb returns these errors for a file that does not begin like its own, or that ends too early.
        DatabaseError::Storage(StorageError::Io(e))
            if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            not_a_journal(e.into())
        }
        DatabaseError::Storage(StorageError::Io(e)) => storage("open", path, StorageError::Io(e)),
        other => not_a_journal(other.into()),
    })
}

/// Returns the policy of a journal with a known format version.
fn read_meta(view: &ReadTransaction, path: &Path) -> Result<Policy, JournalError> {
    let meta = view.open_table(META).map_err(|e| JournalError::NotAJournal {
        path: path.to_owned(),
        source: e.into(),
    })?;
    let mut found = BTreeMap::new();
    for key in [META_VERSION, META_POLICY] {
        let value = meta.get(key).map_err(|e| storage("read", path, e))?;
        found.insert(key, value.map(|guard| guard.value().to_vec()).unwrap_or_default());
    }
    policy_of(path, |key| found.remove(key).unwrap_or_default())
}

/// Parses the policy if the format version is known. `text` returns the value of a key of the `meta` table.
fn policy_of(path: &Path, mut text: impl FnMut(&str) -> Vec<u8>) -> Result<Policy, JournalError> {
    let version = text(META_VERSION);
    let known = [VERSION, VERSION_COMPACTED];
    if known.iter().all(|known| version != known.to_string().as_bytes()) {
        let found = if version.is_empty() {
            "unknown".to_owned()
        } else {
            String::from_utf8_lossy(&version).into_owned()
        };
        return Err(JournalError::Version {
            path: path.to_owned(),
            found,
            expected: VERSION_COMPACTED,
        });
    }
    serde_json::from_slice(&text(META_POLICY)).map_err(|source| JournalError::Policy {
        path: path.to_owned(),
        source,
    })
}

/// Returns the numbers of the first and the last entry that are present; `None` if there are none.
fn held_entries(view: &ReadTransaction) -> Result<Option<(u64, u64)>, redb::Error> {
    let table = view.open_table(EVENTS)?;
    let first = table.first()?.map(|(number, _)| number.value());
    let last = table.last()?.map(|(number, _)| number.value());
    Ok(first.zip(last))
}

/// Callback that receives entries, or their errors, one by one. An error that it returns ends the read.
type EntryCallback<'a> = &'a mut dyn FnMut(Result<StampedEvent, JournalError>) -> Result<(), JournalError>;

/// Passes all entries to `order`, from the next one that it expects.
fn read_events(view: &ReadTransaction, path: &Path, order: &mut EntrySequencer<'_>) -> Result<(), JournalError> {
    let table = view.open_table(EVENTS).map_err(|e| storage("read", path, e))?;
    let entries = table.range(order.next()..).map_err(|e| storage("read", path, e))?;
    for entry in entries {
        let (number, bytes) = entry.map_err(|e| storage("read", path, e))?;
        order.entry(number.value(), bytes.value())?;
    }
    Ok(())
}
