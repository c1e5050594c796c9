//! Journals as those read them who do not own them: looked at, never written to.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rankguard_core::{Event, Policy, Stamped, State, step};
use rankguard_faults::Catalogue;
use rankguard_model::{Case, Evidence};
use redb::{Database, ReadTransaction, ReadableDatabase, StorageError};

use crate::live::{Failed, Holder, Live};
use crate::order::Order;
use crate::overlay::Overlay;
use crate::pages::MAGIC;
use crate::{JOURNAL_FILE, JournalError, META, builder, guarded, read_events, read_meta, storage};

/// A journal that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// How the brain decided; a replay needs the same.
    pub policy: Policy,
    /// What happened, in order.
    pub events: Vec<Stamped>,
}

/// All of a journal. `path` is the journal or its state directory. Refused where an entry is missing or cannot be read.
pub fn read(path: &Path) -> Result<Recording, JournalError> {
    let mut events = Vec::new();
    let policy = scan(path, |entry| {
        events.push(entry?);
        Ok(())
    })?;
    Ok(Recording { policy, events })
}

/// Gives every entry to `take`, in order, with what is wrong with it, and the policy at the end; memory stays bounded.
/// `take` ends the reading with an error. What a controller writes meanwhile is not in it.
pub fn scan(
    path: &Path,
    mut take: impl FnMut(Result<Stamped, JournalError>) -> Result<(), JournalError>,
) -> Result<Policy, JournalError> {
    let path = at(path);
    let mut order = Order::new(&path, &mut take);
    let read = proven(&path).map_or(Err(Failed::Damaged), |live| {
        live.events(&mut order)?;
        live.policy(&path)
    });
    match read {
        Ok(policy) => Ok(policy),
        Err(Failed::Journal(problem)) => Err(problem),
        Err(Failed::Io(problem)) => Err(storage("read", &path, StorageError::Io(problem))),
        Err(Failed::Damaged) => {
            let (view, _database) = look(&path)?;
            let policy = read_meta(&view, &path)?;
            read_events(&view, &path, &mut order)?;
            Ok(policy)
        }
    }
}

/// Gives the evidence of a journal to `take`, in the order in which it arrived, until `take` wants no more.
pub fn evidence(path: &Path, mut take: impl FnMut(Result<Evidence, JournalError>) -> bool) -> Result<(), JournalError> {
    let mut wants = true;
    scan(path, |entry| {
        wants = wants
            && match entry {
                Ok(Stamped {
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

/// What a journal's events led to.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// The cases, by number.
    pub cases: Vec<Case>,
    /// How many entries there were.
    pub entries: u64,
}

/// The cases that the first `most` entries of a journal lead to under a catalogue, or under those that its
/// controller had. `change` sees all evidence before the
/// brain does: other rules would have marked it otherwise. What followed from the old verdicts (plans, restarts) stays as
/// it was recorded. `problem` is told of entries that cannot be read.
pub fn cases(
    path: &Path,
    most: u64,
    catalogue: Option<&'static Catalogue>,
    mut change: impl FnMut(&mut Evidence),
    mut problem: impl FnMut(JournalError),
) -> Result<Played, JournalError> {
    let mut state = State::new(policy(path)?, catalogue.unwrap_or_else(|| Catalogue::builtin()));
    let mut entries = 0;
    scan(path, |entry| {
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
                step(&mut state, &stamped);
            }
            Err(wrong) => problem(wrong),
        }
        Ok(())
    })?;
    let cases = state.cases().values().cloned().collect();
    Ok(Played { cases, entries })
}

/// Whether this is a journal, or the state directory of one. A file that begins as one and is too damaged to say more
/// counts as one; a database of somebody else does not.
pub fn is_journal(path: &Path) -> bool {
    let path = &at(path);
    let mut begins = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begins));
    if read.is_err() || begins != MAGIC {
        return false;
    }
    if let Ok(Some(Ok(has))) = Live::open(path).map(|live| live.map(|live| live.has_meta())) {
        return has;
    }
    look(path).map_or(true, |(view, _database)| view.open_table(META).is_ok())
}

/// Whether a controller has this journal open, so that it goes on where a reader ends.
pub fn in_use(path: &Path) -> bool {
    let live = Live::open(&at(path)).ok().flatten();
    live.is_some_and(|live| live.holder() == Holder::InUse)
}

/// The policy of a journal, without a look at its events.
pub fn policy(path: &Path) -> Result<Policy, JournalError> {
    let path = at(path);
    match Live::open(&path).ok().flatten().map(|live| live.policy(&path)) {
        Some(Ok(policy)) => Ok(policy),
        Some(Err(Failed::Journal(problem))) => Err(problem),
        _ => read_meta(&look(&path)?.0, &path),
    }
}

/// A journal that can be read page by page: one that a controller writes, that was closed, or that was left as whole as
/// if it had been. One of which a crash left part of a commit needs repair, and is none.
fn proven(path: &Path) -> Option<Live> {
    // Whoever looks for a repair says better what is wrong with the file.
    let live = Live::open(path).ok().flatten()?;
    (live.holder() != Holder::Left || live.prove().is_ok()).then_some(live)
}

/// The journal of a state directory, or the file itself.
fn at(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(JOURNAL_FILE)
    } else {
        path.to_owned()
    }
}

/// Opens a journal to be looked at as it would be after a repair, which is made in memory.
fn look(path: &Path) -> Result<(ReadTransaction, Database), JournalError> {
    let overlay = match Overlay::open(path) {
        Ok(Some(overlay)) => overlay,
        Ok(None) => return Err(JournalError::InUse { path: path.to_owned() }),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            return Err(JournalError::Absent { path: path.to_owned() });
        }
        Err(problem) => return Err(storage("open", path, StorageError::Io(problem))),
    };
    // An empty file would become a database of its own.
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
