//! Spool: evidence on disk until the controller has journalled it.
//!
//! Sequence numbers start at 1 and have no gaps (RG-4). A number is bound to its evidence for good once it may have
//! been sent, and nothing is sent before its commit is durable: after kill -9 a number can never return with another
//! meaning. Progress and samples go through the same commits as failures; they only linger a little longer, to share a
//! commit ([`crate::settings::AgentIntervals::spool_linger`]), so that the rate of fsyncs is bounded.
//!
//! Overflow: when the unacknowledged evidence exceeds the limit, the oldest samples and progress that were never sent
//! are dropped, a gap with their count replaces them, and the evidence after them is renumbered (those numbers were
//! never sent). If that is not enough, new samples and progress are rejected; beyond twice the limit all evidence is.
//! Rejected evidence is counted and becomes a gap as soon as there is room.
//!
//! A state directory that was restored from a copy is detected at the join by its epochs: the evidence that the
//! original delivered is removed, the rest gets numbers that were never used, and a gap names the loss (`epochs`,
//! `join`).

mod epochs;
mod join;
mod overflow;
mod table;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, JournalMark, NodeId, Sequence};
use redb::{Database, ReadableDatabase, ReadableTable};
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::watch;

use crate::clock;
use crate::pending_evidence::{PendingEvidence, ReaderCursor};
use crate::views::SpoolView;
use epochs::{EPOCHS, EpochChain};
pub(crate) use join::SpoolJoin;
use table::{CURSORS, EVIDENCE, META, SpoolRecord};

/// Page cache of the database, bytes. Pending evidence is written once and read once, in order.
const CACHE_BYTES: usize = 1 << 20;

/// Room that is kept for reports of a full disk, bytes: some commits of the database, and fences.
const RESERVE_BYTES: u64 = 4 << 20;

/// Failure of the spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another agent has the spool open.
    #[error("lock {path}: another agent uses this state directory")]
    InUse { path: PathBuf },
    /// The database returned an error.
    #[error("use the database")]
    Database(#[source] Box<redb::Error>),
    /// The database could not be opened again after an error; it will be retried.
    #[error("the database is closed after an error")]
    Closed,
    /// A record cannot be decoded.
    #[error("read record {seq}: {problem}")]
    Record {
        /// Sequence number of the record.
        seq: u64,
        problem: String,
    },
    /// The epoch of a session has ended: evidence that was not sent has new numbers.
    #[error("evidence has new numbers since this session began")]
    EpochEnded,
    /// The system returned no random id for a new epoch.
    #[error("cannot begin an epoch: the system gives no random numbers")]
    Random,
}

fn create(path: &Path) -> Result<Database, SpoolError> {
    match Database::builder().set_cache_size(CACHE_BYTES).create(path) {
        Err(redb::DatabaseError::DatabaseAlreadyOpen) => Err(SpoolError::InUse { path: path.to_owned() }),
        other => other.map_err(database),
    }
}

fn opened(db: &Option<Database>) -> Result<&Database, SpoolError> {
    db.as_ref().ok_or(SpoolError::Closed)
}

/// Converts any error of the database to [`SpoolError::Database`].
pub(crate) fn database(error: impl Into<redb::Error>) -> SpoolError {
    SpoolError::Database(Box::new(error.into()))
}

/// Spool of one agent. All methods may be called from any thread; those that write block on the disk.
#[derive(Debug)]
pub(crate) struct Spool {
    path: PathBuf,
    /// None while it is opened again.
    db: RwLock<Option<Database>>,
    node: NodeId,
    limit: u64,
    state: Mutex<SpoolState>,
    /// State after the last change, for readers that must not block on the disk.
    view: Mutex<SpoolView>,
    durable: watch::Sender<u64>,
}

/// State that is readable without the disk.
#[derive(Debug)]
struct SpoolState {
    /// Newest number in use.
    last: u64,
    /// Newest number that may have been sent; evidence up to it keeps its number, unless the directory was restored.
    sent: u64,
    /// All evidence up to this number has left the spool.
    acked: u64,
    /// Size of the records in the table, bytes.
    bytes: u64,
    /// True if a controller ever answered a join of this spool.
    joined: bool,
    /// Count of rejected evidence records that are not yet reported as a gap.
    refused: u64,
    epochs: EpochChain,
    /// Newest known entry of a controller's journal.
    journal: Option<JournalMark>,
}

impl SpoolState {
    fn view(&self, limit: u64) -> SpoolView {
        SpoolView {
            bytes: self.bytes,
            limit_bytes: limit,
            last: self.last,
            sent: self.sent,
            acknowledged: self.acked,
        }
    }
}

impl Spool {
    /// Opens or creates the spool in `path`.
    pub(crate) fn open(path: &Path, node: NodeId, limit: u64) -> Result<Self, SpoolError> {
        let db = create(path)?;
        let txn = db.begin_write().map_err(database)?;
        let state = {
            let meta = txn.open_table(META).map_err(database)?;
            let number = |key: &str| -> Result<u64, SpoolError> {
                Ok(meta.get(key).map_err(database)?.map_or(0, |value| value.value()))
            };
            let records = txn.open_table(EVIDENCE).map_err(database)?;
            txn.open_table(CURSORS).map_err(database)?;
            let mut bytes = 0;
            for entry in records.iter().map_err(database)? {
                bytes += table::cost(entry.map_err(database)?.1.value());
            }
            let last = number(table::LAST)?;
            let mut stored = txn.open_table(EPOCHS).map_err(database)?;
            let mut epochs = EpochChain::read(&stored)?;
            epochs.begin(epochs::new_id()?, last);
            epochs.write(&mut stored)?;
            let journal = JournalMark {
                journal: number(table::JOURNAL)?,
                life: number(table::JOURNAL_LIFE)?,
                position: number(table::JOURNAL_POSITION)?,
            };
            SpoolState {
                last,
                // The numbers that an earlier process sent are unknown, so that all count as sent.
                sent: last,
                acked: number(table::ACKED)?,
                bytes,
                joined: number(table::JOINED)? > 0,
                refused: 0,
                epochs,
                journal: (journal.life > 0).then_some(journal),
            }
        };
        txn.commit().map_err(database)?;
        Ok(Self {
            view: Mutex::new(state.view(limit)),
            path: path.to_owned(),
            db: RwLock::new(Some(db)),
            node,
            limit,
            durable: watch::Sender::new(state.last),
            state: Mutex::new(state),
        })
    }

    fn db(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.db.read().expect("no holder of the database panics")
    }

    /// Keeps [`RESERVE_BYTES`] for the report of a full disk, which could not be written otherwise.
    pub(crate) fn keep_reserve(&self) {
        let path = self.reserve();
        if path.exists() {
            return;
        }
        let mut options = File::options();
        let created = options.write(true).create_new(true).mode(0o600).open(&path);
        let kept = created.and_then(|file| Ok(fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES)?));
        if let Err(problem) = kept {
            tracing::debug!(%problem, "no room is kept for reports of a full disk");
            let _ = std::fs::remove_file(&path);
        }
    }

    /// Gives the kept room to the database. Returns true if there was some.
    pub(crate) fn free_reserve(&self) -> bool {
        std::fs::remove_file(self.reserve()).is_ok()
    }

    fn reserve(&self) -> PathBuf {
        self.path.with_extension("reserve")
    }

    /// Closes and opens the database again, because one that failed to write, for lack of space or otherwise, rejects
    /// everything until then.
    pub(crate) fn reopen(&self) -> Result<(), SpoolError> {
        let mut db = self.db.write().expect("no holder of the database panics");
        // Closed first, because the database locks its file.
        drop(db.take());
        *db = Some(create(&self.path)?);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SpoolState> {
        self.state.lock().expect("no holder of the spool panics")
    }

    /// Returns fill level and numbers without blocking on the disk.
    pub(crate) fn view(&self) -> SpoolView {
        *self.view.lock().expect("no holder of the spool's view panics")
    }

    fn publish(&self, state: &SpoolState) {
        *self.view.lock().expect("no holder of the spool's view panics") = state.view(self.limit);
    }

    /// Returns a receiver that changes whenever there may be new evidence to send.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    /// Returns the count of unacknowledged evidence records.
    pub(crate) fn unacknowledged(&self) -> u64 {
        let state = self.lock();
        state.last - state.acked.min(state.last)
    }

    /// Commits evidence and reader positions; returns the newest number. On an error nothing is stored.
    pub(crate) fn append(&self, batch: &[PendingEvidence], positions: &[ReaderCursor]) -> Result<Sequence, SpoolError> {
        let mut state = self.lock();
        let db = self.db();
        let txn = opened(&db)?.begin_write().map_err(database)?;
        let mut last = state.last;
        let mut bytes = state.bytes;
        let mut refused = state.refused;
        let mut epochs = state.epochs.clone();
        {
            let mut records = txn.open_table(EVIDENCE).map_err(database)?;
            let mut cursors = txn.open_table(CURSORS).map_err(database)?;
            for sighting in batch {
                if let Some(cursor) = &sighting.cursor {
                    table::remember(&mut cursors, cursor)?;
                }
                let room = if sighting.is_droppable() {
                    self.limit
                } else {
                    self.limit.saturating_mul(2)
                };
                let cost = table::cost(&self.record(last + 1, sighting).encode());
                if bytes.saturating_add(cost) > room {
                    let freed = overflow::compact(&mut records, &self.node, state.sent, self.limit)?;
                    (last, bytes) = (last - freed.numbers, bytes.saturating_sub(freed.bytes));
                    if freed.numbers > 0 {
                        epochs.begin(epochs::new_id()?, state.sent);
                    }
                }
                if bytes.saturating_add(cost) > room {
                    refused += 1;
                    continue;
                }
                if refused > 0 {
                    last += 1;
                    bytes += table::put(&mut records, last, &self.refusal(last, refused))?;
                    refused = 0;
                }
                last += 1;
                bytes += table::put(&mut records, last, &self.record(last, sighting))?;
            }
            for cursor in positions {
                table::remember(&mut cursors, cursor)?;
            }
            let mut meta = txn.open_table(META).map_err(database)?;
            meta.insert(table::LAST, last).map_err(database)?;
            if epochs != state.epochs {
                epochs.write(&mut txn.open_table(EPOCHS).map_err(database)?)?;
            }
        }
        txn.commit().map_err(database)?;
        (state.last, state.bytes, state.refused, state.epochs) = (last, bytes, refused, epochs);
        self.publish(&state);
        drop(state);
        self.durable.send_replace(last);
        Ok(Sequence(last))
    }

    fn record(&self, seq: u64, sighting: &PendingEvidence) -> SpoolRecord {
        SpoolRecord(Evidence {
            id: EvidenceId {
                node: self.node.clone(),
                seq: Sequence(seq),
            },
            at: sighting.at,
            source: sighting.source,
            entity: sighting.entity.clone(),
            body: sighting.body.clone(),
            marks: sighting.marks.clone(),
            synthetic: sighting.synthetic,
        })
    }

    fn refusal(&self, seq: u64, refused: u64) -> SpoolRecord {
        let body = EvidenceBody::Gap {
            what: "evidence was not taken: the spool is full and the controller does not acknowledge".to_owned(),
            lost: Some(refused),
        };
        let entity = Entity::Node {
            node: self.node.clone(),
        };
        let mut sighting = PendingEvidence::now(EvidenceSource::Agent, entity, body);
        sighting.at = clock::now();
        self.record(seq, &sighting)
    }

    /// Returns at most `most` evidence records after `after`, oldest first, dated by the node's own clock, and marks
    /// them as sent. Fails if `epoch`, the one that the session reported, has ended.
    pub(crate) fn send_after(&self, epoch: u64, after: Sequence, most: usize) -> Result<Vec<Evidence>, SpoolError> {
        let mut state = self.lock();
        if state.epochs.current() != epoch {
            return Err(SpoolError::EpochEnded);
        }
        let db = self.db();
        let txn = opened(&db)?.begin_read().map_err(database)?;
        let records = txn.open_table(EVIDENCE).map_err(database)?;
        let mut evidence = Vec::new();
        for entry in records.range(after.0 + 1..).map_err(database)?.take(most) {
            let (key, value) = entry.map_err(database)?;
            evidence.push(SpoolRecord::decode(key.value(), &self.node, value.value())?.0);
        }
        if let Some(newest) = evidence.last() {
            state.sent = state.sent.max(newest.id.seq.0);
            self.publish(&state);
        }
        Ok(evidence)
    }

    /// Returns the position of a reader after its newest durable evidence.
    pub(crate) fn cursor(&self, key: &str) -> Result<Option<String>, SpoolError> {
        let db = self.db();
        let txn = opened(&db)?.begin_read().map_err(database)?;
        let cursors = txn.open_table(CURSORS).map_err(database)?;
        let value = cursors.get(key).map_err(database)?;
        Ok(value.map(|value| value.value().to_owned()))
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod restore_tests;
