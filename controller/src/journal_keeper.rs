//! Journal keeper: commits, maintenance between commits, and degraded mode when the disk is full.
//!
//! `Writable => Degraded`: a write failed. The database is closed, the reserve is released and the file is opened
//! again, which shows whether it contains the failed commit. Nothing is written from then on: the controller answers
//! queries, accepts no evidence and no commands, and makes no decisions, as if it were down (RG-5).
//! `Degraded => Writable`: the reserve and the same amount again can be allocated, and a commit succeeds.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankguard_core::{DecisionState, Policy, StampedEvent, step};
use rankguard_journal::{
    EncodedSnapshot, JOURNAL_FILE, Journal, JournalError, JournalRetention, SnapshotError, encode_snapshot, scan_from,
};
use rankguard_model::{Timestamp, with_causes};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::reserve::{DiskReserve, RESERVE_BYTES};

/// Interval of attempts to write again.
pub(crate) const RECOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Journal with its reserve, retention and maintenance state.
#[derive(Debug)]
pub(crate) struct JournalKeeper {
    path: PathBuf,
    dir: PathBuf,
    policy: Policy,
    retention: JournalRetention,
    reserve: DiskReserve,
    /// Absent while the file cannot be opened for writing.
    journal: Option<Journal>,
    /// Entries that the state has applied.
    entries: u64,
    /// [`Journal::entry_bytes`] at that entry.
    entry_bytes: u64,
    /// Cause of the degraded mode; absent while the journal can be written.
    failure: Option<String>,
    encoding: JoinSet<Result<EncodedSnapshot, SnapshotError>>,
    storing: Option<EncodedSnapshot>,
    /// True if retention may have entries or snapshots to remove.
    trimming: bool,
    /// Earliest entry of the next snapshot after a failed attempt.
    not_before: u64,
    /// Pause of the event loop for the latest copy of the state.
    pub(crate) pause: Duration,
}

/// Opened journal with its restored state.
#[derive(Debug)]
pub(crate) struct OpenedJournal {
    pub(crate) keeper: JournalKeeper,
    pub(crate) state: DecisionState,
    /// Time of the last entry.
    pub(crate) last: Timestamp,
}

impl JournalKeeper {
    /// Opens the journal of a state directory and restores its state. If the disk is full, the journal is opened for
    /// reading only.
    pub(crate) fn open(
        dir: &Path,
        policy: &Policy,
        retention: JournalRetention,
    ) -> Result<OpenedJournal, JournalError> {
        let mut keeper = Self {
            path: dir.join(JOURNAL_FILE),
            dir: dir.to_owned(),
            policy: policy.clone(),
            retention,
            reserve: DiskReserve::new(dir),
            journal: None,
            entries: 0,
            entry_bytes: 0,
            failure: None,
            encoding: JoinSet::new(),
            storing: None,
            trimming: true,
            not_before: 0,
            pause: Duration::ZERO,
        };
        let mut opened = Journal::open(&keeper.path, policy);
        if let Err(problem) = &opened
            && problem.is_write_failure()
        {
            keeper.reserve.release();
            opened = Journal::open(&keeper.path, policy);
        }
        let (state, last) = match opened {
            Ok(journal) => keeper.take(journal)?,
            Err(problem) if problem.is_write_failure() && keeper.path.exists() => keeper.read(&problem)?,
            Err(problem) => return Err(problem),
        };
        if keeper.failure.is_none()
            && let Err(problem) = keeper.reserve.hold()
        {
            keeper.degrade(&format!("cannot reserve {} MiB: {problem}", RESERVE_BYTES >> 20));
        }
        Ok(OpenedJournal { keeper, state, last })
    }

    fn take(&mut self, mut journal: Journal) -> Result<(DecisionState, Timestamp), JournalError> {
        let begin = Instant::now();
        let restored = journal.restore()?;
        for problem in &restored.problems {
            warn!("{}; an older one is used", with_causes(problem));
        }
        info!(
            entries = journal.entries(),
            replayed = restored.replayed,
            took_ms = begin.elapsed().as_millis(),
            "journal restored"
        );
        if journal.reclaim()? {
            info!(path = %self.path.display(), "space of removed entries was given back");
        }
        self.entries = journal.entries();
        self.entry_bytes = journal.entry_bytes();
        self.policy = journal.policy().clone();
        self.journal = Some(journal);
        Ok((restored.state, restored.last))
    }

    /// Reads the state of a journal that cannot be opened for writing.
    fn read(&mut self, problem: &JournalError) -> Result<(DecisionState, Timestamp), JournalError> {
        let mut begin = None;
        let mut events = Vec::new();
        self.policy = scan_from(
            &self.path,
            |beginning| begin = Some(beginning),
            |entry| {
                events.push(entry?);
                Ok(())
            },
        )?;
        let (mut state, mut last, removed) = match begin {
            Some(begin) => (begin.state, begin.removed_to.unwrap_or(Timestamp(0)), begin.removed),
            None => {
                return Err(JournalError::Absent {
                    path: self.path.clone(),
                });
            }
        };
        self.entries = removed + events.len() as u64;
        for stamped in &events {
            step(&mut state, stamped);
            last = stamped.at;
        }
        self.degrade(&with_causes(problem));
        Ok((state, last))
    }

    /// Returns the number of events ever committed.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the cause of the degraded mode and its remedy; `None` while the journal can be written.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns the entry time of the newest snapshot.
    pub(crate) fn snapshot_at(&self) -> Option<Timestamp> {
        self.journal.as_ref()?.snapshot_at()
    }

    /// Returns the size of the journal file, bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Writes entries. Returns false if they are not in the journal; then nothing is written until [`JournalKeeper::recover`]
    /// succeeds.
    pub(crate) fn append(&mut self, entries: &[Vec<u8>]) -> bool {
        let Some(journal) = self.journal.as_mut().filter(|_| self.failure.is_none()) else {
            return false;
        };
        match journal.append(entries) {
            Ok(()) => {
                self.entries += entries.len() as u64;
                self.entry_bytes = journal.entry_bytes();
                true
            }
            Err(problem) => {
                self.fail(&problem);
                // The sync may have failed after the last byte was written.
                let found = self.journal.as_ref().map_or(self.entries, Journal::entries);
                let is_there = !entries.is_empty() && found == self.entries + entries.len() as u64;
                if is_there {
                    self.entries = found;
                }
                is_there
            }
        }
    }

    fn fail(&mut self, problem: &JournalError) {
        // The database accepts no further writes after a failed one.
        self.journal = None;
        self.storing = None;
        self.encoding.abort_all();
        self.reserve.release();
        self.degrade(&with_causes(problem));
        self.journal = Journal::open(&self.path, &self.policy)
            .inspect_err(|problem| warn!("{}", with_causes(problem)))
            .ok();
    }

    fn degrade(&mut self, problem: &str) {
        let text = format!(
            "cannot write the journal in {}: {problem}; free space there ({} MiB are needed) or make it writable: the \
             controller goes on by itself",
            self.dir.display(),
            (2 * RESERVE_BYTES) >> 20
        );
        error!("{text}; until then no evidence, no commands and no sessions are taken, and running jobs run on");
        self.failure = Some(text);
    }

    /// Tries to leave degraded mode. Returns events of a commit that was written although it failed; the state has not
    /// applied them.
    pub(crate) fn recover(&mut self) -> Option<Vec<StampedEvent>> {
        self.reserve.hold_with_margin().ok()?;
        match self.reopen() {
            Ok(missed) => {
                self.entries += missed.len() as u64;
                self.failure = None;
                self.trimming = true;
                info!(dir = %self.dir.display(), "the journal can be written again");
                Some(missed)
            }
            Err(problem) => {
                self.journal = None;
                self.reserve.release();
                warn!("{}", with_causes(&problem));
                None
            }
        }
    }

    fn reopen(&mut self) -> Result<Vec<StampedEvent>, JournalError> {
        // Always opened again: a database opened on a full disk may be unable to write.
        self.journal = None;
        let mut journal = Journal::open(&self.path, &self.policy)?;
        let missed = journal.entries_after(self.entries)?;
        journal.resume(self.entry_bytes);
        journal.append(&[])?;
        self.journal = Some(journal);
        Ok(missed)
    }

    /// Returns true if [`JournalKeeper::maintain`] has work to do.
    pub(crate) fn has_upkeep(&self) -> bool {
        self.failure.is_none() && self.journal.is_some() && (self.storing.is_some() || self.trimming)
    }

    /// Does a slice of maintenance: writes a part of a snapshot, or removes some entries.
    pub(crate) fn maintain(&mut self, now: Timestamp) {
        let Some(journal) = self.journal.as_mut().filter(|_| self.failure.is_none()) else {
            return;
        };
        let done = if let Some(snapshot) = &mut self.storing {
            journal.store_slice(snapshot).map(|is_complete| {
                if is_complete {
                    self.storing = None;
                    self.trimming = true;
                }
            })
        } else if self.trimming {
            journal
                .trim(&self.retention, now)
                .map(|is_done| self.trimming = !is_done)
        } else {
            Ok(())
        };
        if let Err(problem) = done {
            self.fail(&problem);
        }
    }

    /// Starts a snapshot if one is due: the state is cloned here and encoded on a blocking thread.
    pub(crate) fn begin_snapshot(&mut self, state: &DecisionState, last: Timestamp, now: Timestamp) {
        let Some(journal) = self.journal.as_ref().filter(|_| self.failure.is_none()) else {
            return;
        };
        let is_busy = self.storing.is_some() || !self.encoding.is_empty() || self.trimming;
        if is_busy || self.entries < self.not_before || !journal.is_snapshot_due(&self.retention, now) {
            return;
        }
        let begin = Instant::now();
        let state = state.clone();
        self.pause = begin.elapsed();
        let entry = self.entries;
        let bytes = journal.entry_bytes();
        self.encoding
            .spawn_blocking(move || encode_snapshot(&state, entry, last, bytes));
    }

    /// Waits until a snapshot is encoded; pending while none is being encoded.
    pub(crate) async fn encoded(&mut self) {
        let outcome = match self.encoding.join_next().await {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        };
        match outcome {
            Ok(Ok(snapshot)) => self.storing = Some(snapshot),
            Ok(Err(problem)) => {
                error!("no snapshot of the journal: {}", with_causes(&problem));
                self.not_before = self.entries + self.retention.snapshot_entries;
            }
            Err(problem) if problem.is_cancelled() => {}
            Err(problem) => {
                error!(%problem, "no snapshot of the journal");
                self.not_before = self.entries + self.retention.snapshot_entries;
            }
        }
    }
}
