//! Readers of journals that another process may own; the file is never written.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rankguard_core::{DecisionState, Event, Policy, StampedEvent, step};
use rankguard_faults::Catalogue;
use rankguard_model::{Case, Evidence, Timestamp};
use redb::{Database, ReadTransaction, ReadableDatabase, StorageError};

use crate::live::{LiveJournal, LiveReadError, WriterState};
use crate::order::EntrySequencer;
use crate::overlay::OverlayFile;
use crate::pages::MAGIC;
use crate::snapshot::{self, SnapshotRecord};
use crate::{
    EntryCallback, JOURNAL_FILE, JournalError, META, builder, guarded, held_entries, read_events, read_meta, storage,
};

/// Beginning of a journal: the initial state, or that of the snapshot in place of removed events.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalStart {
    /// State before the first event that is present.
    pub state: DecisionState,
    /// Number of removed events.
    pub removed: u64,
    /// Time of the last removed event; `None` if none was removed.
    pub removed_to: Option<Timestamp>,
}

/// Content of a journal, in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedJournal {
    /// Settings of the decision core under which the events were decided; a replay requires the same.
    pub policy: Policy,
    /// State before the first event that is present.
    pub begin: Box<DecisionState>,
    /// Events that are present, in order.
    pub events: Vec<StampedEvent>,
}

/// Reads a whole journal into memory. `path` is the journal file or its state directory. Fails if an entry is missing
/// or unreadable.
pub fn read(path: &Path) -> Result<RecordedJournal, JournalError> {
    let mut events = Vec::new();
    let mut begin = None;
    let policy = scan_from(
        path,
        |beginning| begin = Some(beginning.state),
        |entry| {
            events.push(entry?);
            Ok(())
        },
    )?;
    let begin = begin.unwrap_or_else(|| DecisionState::new(policy.clone(), Catalogue::builtin()));
    Ok(RecordedJournal {
        policy,
        begin: Box::new(begin),
        events,
    })
}

/// Passes every entry that is present, or its error, to `take` in order, and returns the policy. `path` is the journal
/// file or its state directory. An error from `take` ends the read. Entries that a controller appends meanwhile are not
/// included. Memory is bounded.
pub fn scan(
    path: &Path,
    take: impl FnMut(Result<StampedEvent, JournalError>) -> Result<(), JournalError>,
) -> Result<Policy, JournalError> {
    scan_from(path, |_| {}, take)
}

/// Reads a journal as [`scan`] does. Before the first entry, `begin` receives the state from which the entries
/// continue.
pub fn scan_from(
    path: &Path,
    begin: impl FnOnce(JournalStart),
    mut take: impl FnMut(Result<StampedEvent, JournalError>) -> Result<(), JournalError>,
) -> Result<Policy, JournalError> {
    let path = journal_path(path);
    let read = open_verified(&path).map_or(Err(LiveReadError::Damaged), |live| {
        let policy = live.policy(&path)?;
        let snapshot = live.oldest_snapshot(&path, &mut take)?;
        Ok((live, policy, snapshot))
    });
    let failed = |failed: LiveReadError| match failed {
        LiveReadError::Io(problem) => storage("read", &path, StorageError::Io(problem)),
        LiveReadError::Journal(problem) => problem,
        LiveReadError::Damaged => JournalError::NotAJournal {
            path: path.clone(),
            source: "its pages are damaged".into(),
        },
    };
    match read {
        Ok((live, policy, snapshot)) => {
            let (beginning, next) = beginning(&policy, snapshot);
            begin(beginning);
            let mut order = EntrySequencer::new(&path, next, &mut take);
            match live.events(&mut order) {
                Ok(()) => Ok(policy),
                // The remaining entries can be read only after a repair.
                Err(LiveReadError::Damaged) => {
                    let (view, _database) = open_repaired(&path)?;
                    read_events(&view, &path, &mut order)?;
                    Ok(policy)
                }
                Err(other) => Err(failed(other)),
            }
        }
        Err(LiveReadError::Damaged) => {
            let (view, _database) = open_repaired(&path)?;
            let policy = read_meta(&view, &path)?;
            let snapshot = oldest_in(&view, &path, &mut take)?;
            let (beginning, next) = beginning(&policy, snapshot);
            begin(beginning);
            read_events(&view, &path, &mut EntrySequencer::new(&path, next, &mut take))?;
            Ok(policy)
        }
        Err(other) => Err(failed(other)),
    }
}

/// Record and state of a snapshot.
pub(crate) type LoadedSnapshot = (SnapshotRecord, DecisionState);

/// Returns the beginning of a journal with this oldest snapshot, and the number of the first entry to read.
fn beginning(policy: &Policy, snapshot: Option<LoadedSnapshot>) -> (JournalStart, u64) {
    match snapshot {
        None => {
            let state = DecisionState::new(policy.clone(), Catalogue::builtin());
            let beginning = JournalStart {
                state,
                removed: 0,
                removed_to: None,
            };
            (beginning, 1)
        }
        Some((record, state)) => {
            let beginning = JournalStart {
                state,
                removed: record.entry,
                removed_to: Some(record.at),
            };
            (beginning, record.entry + 1)
        }
    }
}

/// Returns the oldest readable snapshot with all later entries present; `None` if no entries were removed. An
/// unreadable snapshot is reported to `take`, and the next one is used.
fn oldest_in(
    view: &ReadTransaction,
    path: &Path,
    take: EntryCallback<'_>,
) -> Result<Option<LoadedSnapshot>, JournalError> {
    let failed = |problem: redb::Error| storage("read", path, problem);
    let first = held_entries(view).map_err(failed)?.map(|(first, _)| first);
    for record in snapshot::read_records(view).map_err(failed)? {
        if !begins_with(&record, first) {
            continue;
        }
        let bytes = snapshot::read_bytes(view, &record).map_err(failed)?;
        match decoded(path, record, &bytes) {
            Ok(snapshot) => return Ok(Some(snapshot)),
            Err(problem) => take(Err(problem))?,
        }
    }
    Ok(None)
}

/// Returns true if a read may begin with this snapshot: entries were removed, and none after the snapshot is missing.
/// `first` is the first entry that is present.
pub(crate) fn begins_with(record: &SnapshotRecord, first: Option<u64>) -> bool {
    first.is_none_or(|first| first > 1 && record.entry + 1 >= first)
}

/// Decodes a snapshot; an error names the file and the entry.
pub(crate) fn decoded(path: &Path, record: SnapshotRecord, bytes: &[u8]) -> Result<LoadedSnapshot, JournalError> {
    match record.decode(bytes) {
        Ok(state) => Ok((record, state)),
        Err(problem) => Err(JournalError::Snapshot {
            path: path.to_owned(),
            entry: record.entry,
            problem,
        }),
    }
}

/// Passes the evidence of a journal, and the errors of its entries, to `take` in the order of arrival, until `take`
/// returns false. Fails as [`scan`] does.
pub fn evidence(path: &Path, mut take: impl FnMut(Result<Evidence, JournalError>) -> bool) -> Result<(), JournalError> {
    let mut wants = true;
    scan(path, |entry| {
        wants = wants
            && match entry {
                Ok(StampedEvent {
                    event: Event::EvidenceArrived { evidence },
                    ..
                }) => take(Ok(evidence)),
                Ok(_) => true,
                Err(problem) => take(Err(problem)),
            };
        Ok(())
    })
    .map(drop)
}

/// Result of the replay of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayResult {
    /// Cases, ascending by number.
    pub cases: Vec<Case>,
    /// Number of replayed entries; an error in place of an entry counts too.
    pub entries: u64,
}

/// Replays the first `most` entries that are present in a journal, and returns the resulting cases.
///
/// With `catalogue`, all evidence is diagnosed under it, and recorded catalogues are ignored; otherwise each applies
/// from its entry on, as in the controller. `change` modifies all evidence before it is applied, because other rules
/// would have classified it otherwise. Recorded consequences of the old verdicts (plans, restarts) are unchanged.
/// `problem` receives the errors of missing and unreadable entries. Fails as [`scan`] does.
pub fn cases(
    path: &Path,
    most: u64,
    catalogue: Option<&'static Catalogue>,
    change: impl FnMut(&mut Evidence),
    problem: impl FnMut(JournalError),
) -> Result<ReplayResult, JournalError> {
    let replayed = replay(path, most, catalogue, change, problem)?;
    let cases = replayed.state.iter().flat_map(|state| state.cases().values().cloned());
    Ok(ReplayResult {
        cases: cases.collect(),
        entries: replayed.entries,
    })
}

/// History of a controller, from its journal.
#[derive(Debug, Clone)]
pub struct JournalHistory {
    /// State after the last entry, with all cases, plans and finished jobs of the entries; what the retention has removed is
    /// known as the oldest snapshot had it. `None` for a journal without entries.
    pub state: Option<DecisionState>,
    /// Time of the last entry.
    pub last: Option<Timestamp>,
}

/// Replays all entries that are present in a journal, which is only read. `path` is the journal file or its state
/// directory. `problem` receives the errors of missing and unreadable entries. Fails as [`scan`] does.
pub fn history(path: &Path, problem: impl FnMut(JournalError)) -> Result<JournalHistory, JournalError> {
    let replayed = replay(path, u64::MAX, None, |_| {}, problem)?;
    Ok(JournalHistory {
        state: replayed.state,
        last: replayed.last,
    })
}

struct Replayed {
    state: Option<DecisionState>,
    entries: u64,
    last: Option<Timestamp>,
}

fn replay(
    path: &Path,
    most: u64,
    catalogue: Option<&'static Catalogue>,
    mut change: impl FnMut(&mut Evidence),
    mut problem: impl FnMut(JournalError),
) -> Result<Replayed, JournalError> {
    let mut state = None;
    let mut entries = 0;
    let mut last = None;
    let begin = Cell::new(None);
    scan_from(
        path,
        |beginning| begin.set(Some(beginning.state)),
        |entry| {
            if let Some(begin) = begin.take() {
                state = Some(match catalogue {
                    Some(catalogue) => begin.without_limits().with_catalogue(catalogue),
                    None => begin.without_limits(),
                });
            }
            let Some(state) = &mut state else { return Ok(()) };
            if entries >= most {
                return Ok(());
            }
            entries += 1;
            match entry {
                Ok(stamped) if catalogue.is_some() && matches!(stamped.event, Event::CatalogueGiven { .. }) => {}
                Ok(mut stamped) => {
                    if let Event::EvidenceArrived { evidence } = &mut stamped.event {
                        change(evidence);
                    }
                    last = Some(stamped.at);
                    step(state, &stamped);
                }
                Err(wrong) => problem(wrong),
            }
            Ok(())
        },
    )?;
    Ok(Replayed {
        state: state.or(begin.take()),
        entries,
        last,
    })
}

/// Returns true for a journal and for the state directory of one. A damaged file with the magic number of a redb
/// database counts as a journal; an intact database without the tables of a journal does not.
pub fn is_journal(path: &Path) -> bool {
    let path = &journal_path(path);
    let mut begins = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begins));
    if read.is_err() || begins != MAGIC {
        return false;
    }
    if let Ok(Some(Ok(has))) = LiveJournal::open(path).map(|live| live.map(|live| live.has_meta())) {
        return has;
    }
    open_repaired(path).map_or(true, |(view, _database)| view.open_table(META).is_ok())
}

/// Returns true if a controller has this journal open, so that more entries may follow.
pub fn in_use(path: &Path) -> bool {
    let live = LiveJournal::open(&journal_path(path)).ok().flatten();
    live.is_some_and(|live| live.holder() == WriterState::InUse)
}

/// Returns the policy of a journal without a read of its events. `path` is the journal file or its state directory.
pub fn policy(path: &Path) -> Result<Policy, JournalError> {
    let path = journal_path(path);
    match LiveJournal::open(&path).ok().flatten().map(|live| live.policy(&path)) {
        Some(Ok(policy)) => Ok(policy),
        Some(Err(LiveReadError::Journal(problem))) => Err(problem),
        _ => read_meta(&open_repaired(&path)?.0, &path),
    }
}

/// Opens a journal that can be read page by page: in use, closed, or left consistent by a crash. Returns `None` for one
/// with a partial commit, which requires a repair, and for other files.
fn open_verified(path: &Path) -> Option<LiveJournal> {
    // The repair path reports problems of the file in more detail.
    let live = LiveJournal::open(path).ok().flatten()?;
    (live.holder() != WriterState::Left || live.verify_pages().is_ok()).then_some(live)
}

/// Returns the path of the journal in a state directory; the path of a file is returned as it is.
fn journal_path(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(JOURNAL_FILE)
    } else {
        path.to_owned()
    }
}

/// Opens a journal as it would be after a repair, which is made in memory. Fails if a controller has the journal open.
fn open_repaired(path: &Path) -> Result<(ReadTransaction, Database), JournalError> {
    let overlay = match OverlayFile::open(path) {
        Ok(Some(overlay)) => overlay,
        Ok(None) => return Err(JournalError::InUse { path: path.to_owned() }),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            return Err(JournalError::Absent { path: path.to_owned() });
        }
        Err(problem) => return Err(storage("open", path, StorageError::Io(problem))),
    };
    // redb would create a new database over an empty file.
    if fs::metadata(path)
        .map_err(|e| storage("open", path, StorageError::Io(e)))?
        .len()
        == 0
    {
        return Err(JournalError::NotAJournal {
            path: path.to_owned(),
            source: "it is empty".into(),
        });
    }
    let database = guarded(path, || builder().create_with_backend(overlay))?;
    let view = database.begin_read().map_err(|e| storage("read", path, e))?;
    Ok((view, database))
}
