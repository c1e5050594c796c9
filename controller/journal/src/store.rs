//! Snapshots for the controller: restores the state, stores snapshots in slices, and removes old entries.

use std::fs;

use rankguard_core::{DecisionState, StampedEvent, step};
use rankguard_faults::Catalogue;
use rankguard_model::Timestamp;
use redb::{ReadableTable, WriteTransaction};

use crate::retention::JournalTail;
use crate::snapshot::{PART_BYTES, PARTS, RECORDS, SnapshotRecord, part_key, read_bytes, serial_of};
use crate::{
    EVENTS, EncodedSnapshot, Journal, JournalError, JournalRetention, META, META_VERSION, VERSION_COMPACTED, decode,
    storage,
};

/// Parts written per slice: with their sync they delay a commit by a few milliseconds.
const SLICE_PARTS: u64 = 16;
/// File size below which the file is not compacted, bytes.
const RECLAIM_BYTES: u64 = 256 << 20;
/// Ratio of file size to content from which on the file is compacted.
const RECLAIM_FACTOR: u64 = 4;
/// Entries removed per slice.
const TRIM_ENTRIES: u64 = 2_048;

/// State restored from a journal.
#[derive(Debug)]
pub struct RestoredState {
    /// State after the last entry.
    pub state: DecisionState,
    /// Time of the last entry.
    pub last: Timestamp,
    /// Entries that were replayed on top of the snapshot.
    pub replayed: u64,
    /// Snapshots that could not be used.
    pub problems: Vec<JournalError>,
}

impl Journal {
    /// Restores the state after the last entry: from the newest readable snapshot, and the entries after it.
    pub fn restore(&mut self) -> Result<RestoredState, JournalError> {
        let view = self.view()?;
        let mut problems = Vec::new();
        let mut begin = None;
        for record in self
            .snapshots
            .iter()
            .rev()
            .filter(|record| record.entry + 1 >= self.first)
        {
            let bytes = read_bytes(&view, record).map_err(|e| storage("read", &self.path, e))?;
            match record.decode(&bytes) {
                Ok(state) => {
                    begin = Some((state, record.clone()));
                    break;
                }
                Err(problem) => problems.push(JournalError::Snapshot {
                    path: self.path.clone(),
                    entry: record.entry,
                    problem,
                }),
            }
        }
        let (mut state, mut last, from) = match begin {
            Some((state, record)) => {
                self.entry_bytes = record.entry_bytes;
                (state, record.at, record.entry + 1)
            }
            None if self.first == 1 => {
                self.entry_bytes = 0;
                let state = DecisionState::new(self.policy.clone(), Catalogue::builtin());
                (state, Timestamp(0), 1)
            }
            None => {
                return Err(JournalError::NoSnapshot {
                    path: self.path.clone(),
                    first: self.first,
                });
            }
        };
        let mut bytes = 0;
        let table = view.open_table(EVENTS).map_err(|e| storage("read", &self.path, e))?;
        let mut next = from;
        for entry in table.range(from..).map_err(|e| storage("read", &self.path, e))? {
            let (number, entry) = entry.map_err(|e| storage("read", &self.path, e))?;
            let stamped = self.decoded(next, number.value(), entry.value())?;
            bytes += entry.value().len() as u64;
            step(&mut state, &stamped);
            last = stamped.at;
            next += 1;
        }
        self.entry_bytes += bytes;
        Ok(RestoredState {
            state,
            last,
            replayed: next - from,
            problems,
        })
    }

    fn decoded(&self, wanted: u64, number: u64, bytes: &[u8]) -> Result<StampedEvent, JournalError> {
        if number != wanted {
            return Err(JournalError::Gap {
                path: self.path.clone(),
                entry: wanted,
            });
        }
        decode(bytes).map_err(|source| JournalError::Unreadable {
            path: self.path.clone(),
            entry: number,
            source,
        })
    }

    /// Sets [`Journal::entry_bytes`] of a journal that was opened again without [`Journal::restore`].
    pub fn resume(&mut self, entry_bytes: u64) {
        self.entry_bytes = entry_bytes;
    }

    /// Compacts the file if most of it is unused. The time grows with the content. Returns true if the file became
    /// smaller.
    pub fn reclaim(&mut self) -> Result<bool, JournalError> {
        let removed = match self.snapshots.first() {
            Some(base) if self.first > 1 => base.entry_bytes,
            _ => 0,
        };
        let snapshots: u64 = self.snapshots.iter().map(|record| record.bytes).sum();
        let held = self.entry_bytes.saturating_sub(removed) + snapshots;
        let file = fs::metadata(&self.path).map_or(0, |file| file.len());
        if file < RECLAIM_BYTES || file < RECLAIM_FACTOR * held {
            return Ok(false);
        }
        let compacted = self.database.compact();
        compacted.map_err(|e| storage("compact", &self.path, e))
    }

    /// Returns the events after an entry.
    pub fn entries_after(&mut self, entry: u64) -> Result<Vec<StampedEvent>, JournalError> {
        let view = self.view()?;
        let table = view.open_table(EVENTS).map_err(|e| storage("read", &self.path, e))?;
        let range = table.range(entry + 1..).map_err(|e| storage("read", &self.path, e))?;
        let mut events = Vec::new();
        for found in range {
            let (number, bytes) = found.map_err(|e| storage("read", &self.path, e))?;
            events.push(self.decoded(entry + 1 + events.len() as u64, number.value(), bytes.value())?);
        }
        Ok(events)
    }

    /// Returns the entry time of the newest snapshot.
    pub fn snapshot_at(&self) -> Option<Timestamp> {
        self.snapshots.last().map(|newest| newest.at)
    }

    /// Returns true if a snapshot is due.
    pub fn is_snapshot_due(&self, retention: &JournalRetention, now: Timestamp) -> bool {
        let newest = self.snapshots.last();
        let tail = JournalTail {
            entries: self.entries - newest.map_or(0, |newest| newest.entry),
            bytes: self.entry_bytes - newest.map_or(0, |newest| newest.entry_bytes),
        };
        retention.is_due(newest, tail, now)
    }

    /// Writes the next slice of a snapshot. Returns true when it is complete.
    pub fn store_slice(&mut self, snapshot: &mut EncodedSnapshot) -> Result<bool, JournalError> {
        if snapshot.record.serial == 0 {
            snapshot.record.serial = self.snapshots.last().map_or(0, |newest| newest.serial) + 1;
        }
        let record = snapshot.record.clone();
        let from = snapshot.written;
        let to = (from + SLICE_PARTS).min(record.parts());
        let is_last = to == record.parts();
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut parts = transaction.open_table(PARTS)?;
                for part in from..to {
                    let bytes = snapshot
                        .bytes
                        .chunks(PART_BYTES)
                        .nth(usize::try_from(part).unwrap_or(usize::MAX));
                    parts.insert(part_key(record.serial, part), bytes.unwrap_or_default())?;
                }
                let mut records = transaction.open_table(RECORDS)?;
                if is_last {
                    let json = serde_json::to_vec(&record).map_err(|e| redb::Error::Io(e.into()))?;
                    records.insert(record.serial, json.as_slice())?;
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(|e| storage("write", &self.path, e))?;
        snapshot.written = to;
        if is_last {
            self.snapshots.push(record);
        }
        Ok(is_last)
    }

    /// Removes a slice of what retention does not keep. Returns true when nothing is left to remove. The order leaves a
    /// complete journal at every step: first snapshot records, then entries, then parts.
    pub fn trim(&mut self, retention: &JournalRetention, now: Timestamp) -> Result<bool, JournalError> {
        let beginning = retention.beginning(&self.snapshots, self.entry_bytes, now);
        let mut gone = retention.superfluous(&self.snapshots);
        gone.extend(
            self.snapshots
                .iter()
                .map(|record| record.serial)
                .filter(|serial| Some(*serial) < beginning),
        );
        self.remove_records(&gone)?;
        let base = self.snapshots.iter().find(|record| Some(record.serial) == beginning);
        if let Some(base) = base.map(|base| base.entry).filter(|base| *base >= self.first) {
            self.remove_entries(base)?;
            return Ok(false);
        }
        self.remove_parts()
    }

    fn remove_records(&mut self, gone: &[u64]) -> Result<(), JournalError> {
        if gone.is_empty() {
            return Ok(());
        }
        self.changed(|transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            for serial in gone {
                records.remove(serial)?;
            }
            Ok(())
        })?;
        self.snapshots.retain(|record| !gone.contains(&record.serial));
        Ok(())
    }

    /// Removes at most [`TRIM_ENTRIES`] entries up to `base`.
    fn remove_entries(&mut self, base: u64) -> Result<(), JournalError> {
        let to = base.min(self.first + TRIM_ENTRIES - 1);
        let first = self.first;
        self.changed(|transaction| {
            let mut events = transaction.open_table(EVENTS)?;
            events.retain_in(first..=to, |_, _| false)?;
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_VERSION, VERSION_COMPACTED.to_string().as_bytes())?;
            Ok(())
        })?;
        self.first = to + 1;
        Ok(())
    }

    /// Removes some parts of one snapshot without a record. Returns true if there are none.
    fn remove_parts(&mut self) -> Result<bool, JournalError> {
        let records: Vec<u64> = self.snapshots.iter().map(|record| record.serial).collect();
        let mut done = true;
        self.changed(|transaction| {
            let mut parts = transaction.open_table(PARTS)?;
            let mut doomed = Vec::new();
            let mut serial = 0;
            while let Some(key) = parts.range(part_key(serial, 0)..)?.next() {
                let key = key?.0.value();
                if records.contains(&serial_of(key)) {
                    serial = serial_of(key) + 1;
                    continue;
                }
                doomed.push(key);
                serial = serial_of(key);
                let more = parts
                    .range(key + 1..part_key(serial + 1, 0))?
                    .take(2 * SLICE_PARTS as usize);
                for key in more {
                    doomed.push(key?.0.value());
                }
                break;
            }
            for key in &doomed {
                parts.remove(key)?;
            }
            done = doomed.is_empty();
            Ok(())
        })?;
        Ok(done)
    }

    fn changed(&self, change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>) -> Result<(), JournalError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            change(&transaction)?;
            Ok(transaction.commit()?)
        };
        write().map_err(|e| storage("write", &self.path, e))
    }

    /// Returns the snapshot records, oldest first.
    pub fn snapshots(&self) -> &[SnapshotRecord] {
        &self.snapshots
    }
}
