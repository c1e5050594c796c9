//! Snapshots: the state of the decision core after an entry, so that the entries before it can be removed.
//!
//! A snapshot is JSON in parts of [`PART_BYTES`] in table `snapshot_parts`, and a [`SnapshotRecord`] in table
//! `snapshots` that is written in one transaction with the last part: a snapshot without a record does not exist. The
//! record holds a digest of all parts. A snapshot is written only if it decodes to the state that was encoded.

use rankguard_core::DecisionState;
use rankguard_model::Timestamp;
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// Table of [`SnapshotRecord`]s as JSON, by serial number.
pub(crate) const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("snapshots");
/// Table of parts, by [`part_key`].
pub(crate) const PARTS: TableDefinition<u64, &[u8]> = TableDefinition::new("snapshot_parts");

/// Part size, bytes: with its key it fills one page of 64 KiB.
pub(crate) const PART_BYTES: usize = 60 << 10;
/// Bits of a part key for the number of the part.
const PART_BITS: u32 = 24;

/// Description of a stored snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Number of the snapshot, from 1.
    pub serial: u64,
    /// Last entry that it includes.
    pub entry: u64,
    /// Time of that entry.
    pub at: Timestamp,
    /// Size of the JSON, bytes.
    pub bytes: u64,
    /// Bytes of all entries up to `entry`, removed ones included.
    pub entry_bytes: u64,
    /// XXH3 (128 bits) of the bytes, as hexadecimal digits.
    pub digest: String,
}

impl SnapshotRecord {
    /// Returns the number of parts.
    pub(crate) fn parts(&self) -> u64 {
        self.bytes.div_ceil(PART_BYTES as u64)
    }

    /// Returns the keys of its parts.
    pub(crate) fn keys(&self) -> std::ops::Range<u64> {
        part_key(self.serial, 0)..part_key(self.serial, self.parts())
    }

    /// Decodes the state after checking length and digest.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<DecisionState, String> {
        if bytes.len() as u64 != self.bytes || digest(bytes) != self.digest {
            return Err("its bytes are not those that were written".to_owned());
        }
        serde_json::from_slice(bytes).map_err(|problem| format!("this program cannot read it: {problem}"))
    }
}

/// Snapshot to be written into a journal; made by [`encode_snapshot`], written by [`crate::Journal::store_slice`].
#[derive(Debug)]
pub struct EncodedSnapshot {
    pub(crate) record: SnapshotRecord,
    pub(crate) bytes: Vec<u8>,
    /// Parts that are written.
    pub(crate) written: u64,
}

impl EncodedSnapshot {
    /// Returns the record. The serial number is assigned when it is written.
    pub fn record(&self) -> &SnapshotRecord {
        &self.record
    }
}

/// Reason why a state cannot be stored as a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The state has no JSON form.
    #[error("cannot write the state as JSON")]
    Encode(#[source] serde_json::Error),
    /// The JSON form cannot be decoded.
    #[error("cannot read back the state that was written")]
    Decode(#[source] serde_json::Error),
    /// The JSON form decodes to another state.
    #[error("cannot use the snapshot: it reads back as another state; report this as a bug")]
    Differs,
}

/// Encodes a state as the snapshot after `entry`. `entry_bytes` is [`crate::Journal::entry_bytes`] at that entry. The
/// time grows with the size of the state, so call it on a blocking thread.
pub fn encode_snapshot(
    state: &DecisionState,
    entry: u64,
    at: Timestamp,
    entry_bytes: u64,
) -> Result<EncodedSnapshot, SnapshotError> {
    let bytes = serde_json::to_vec(state).map_err(SnapshotError::Encode)?;
    let again: DecisionState = serde_json::from_slice(&bytes).map_err(SnapshotError::Decode)?;
    if again != *state {
        return Err(SnapshotError::Differs);
    }
    let record = SnapshotRecord {
        serial: 0,
        entry,
        at,
        bytes: bytes.len() as u64,
        entry_bytes,
        digest: digest(&bytes),
    };
    Ok(EncodedSnapshot {
        record,
        bytes,
        written: 0,
    })
}

/// Returns the key of a part.
pub(crate) fn part_key(serial: u64, part: u64) -> u64 {
    serial << PART_BITS | part
}

/// Returns the serial number of the snapshot that a part belongs to.
pub(crate) fn serial_of(key: u64) -> u64 {
    key >> PART_BITS
}

fn digest(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// Reads the snapshot records of a journal, oldest first; empty for a journal without snapshots.
pub(crate) fn read_records(view: &ReadTransaction) -> Result<Vec<SnapshotRecord>, redb::Error> {
    let table = match view.open_table(RECORDS) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(problem) => return Err(problem.into()),
    };
    let mut records = Vec::new();
    for entry in table.iter()? {
        records.extend(parse_record(entry?.1.value()));
    }
    Ok(records)
}

/// Parses a record. A snapshot with an unreadable record does not exist for this program.
pub(crate) fn parse_record(bytes: &[u8]) -> Option<SnapshotRecord> {
    serde_json::from_slice(bytes).ok()
}

/// Reads the parts of a snapshot that are present.
pub(crate) fn read_bytes(view: &ReadTransaction, record: &SnapshotRecord) -> Result<Vec<u8>, redb::Error> {
    let table = match view.open_table(PARTS) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(problem) => return Err(problem.into()),
    };
    let mut bytes = Vec::new();
    for part in table.range(record.keys())? {
        bytes.extend_from_slice(part?.1.value());
    }
    Ok(bytes)
}
