//! Tables of the spool and the format of a record.

use prost::Message;
use rankguard_model::{Evidence, NodeId, Sequence};
use rankguard_proto::v1;
use redb::{Table, TableDefinition};

use super::{SpoolError, database};
use crate::pending_evidence::ReaderCursor;

/// Sequence number to record.
pub(super) const EVIDENCE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("evidence");
/// Values that must outlive the records, under the keys below.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Reader key to its position.
pub(super) const CURSORS: TableDefinition<'_, &str, &str> = TableDefinition::new("cursors");

/// Newest number in use; its record may be gone.
pub(super) const LAST: &str = "last";
/// Newest acknowledged number.
pub(super) const ACKED: &str = "acked";
/// 1 if a controller ever answered a join of this spool.
pub(super) const JOINED: &str = "joined";
/// Newest known entry of a controller's journal: the journal, the start of the controller, the entry's position.
pub(super) const JOURNAL: &str = "journal";
pub(super) const JOURNAL_LIFE: &str = "journal-life";
pub(super) const JOURNAL_POSITION: &str = "journal-position";

/// Evidence as stored in the table: the wire's own message, so that there is one encoding to evolve.
pub(super) struct SpoolRecord(pub(super) Evidence);

impl SpoolRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        v1::Evidence::from(&self.0).encode_to_vec()
    }

    pub(super) fn decode(seq: u64, node: &NodeId, bytes: &[u8]) -> Result<Self, SpoolError> {
        let unreadable = |problem: String| SpoolError::Record { seq, problem };
        let wire = v1::Evidence::decode(bytes).map_err(|e| unreadable(e.to_string()))?;
        let mut evidence = Evidence::try_from(wire).map_err(|e| unreadable(e.to_string()))?;
        // Number and node come from the key and the agent's name, so that a renumbered record does not carry its old
        // identity.
        evidence.id.seq.0 = seq;
        evidence.id.node.clone_from(node);
        Ok(Self(evidence))
    }
}

/// Returns the size of a record against the limit, bytes: its encoding and the table's overhead.
pub(super) fn cost(record: &[u8]) -> u64 {
    record.len() as u64 + 32
}

/// Writes a record under its number, which is also set in the encoding, and returns its cost.
pub(super) fn put(records: &mut Table<'_, u64, &[u8]>, seq: u64, record: &SpoolRecord) -> Result<u64, SpoolError> {
    let mut numbered = record.0.clone();
    numbered.id.seq = Sequence(seq);
    let bytes = SpoolRecord(numbered).encode();
    records.insert(seq, bytes.as_slice()).map_err(database)?;
    Ok(cost(&bytes))
}

/// Stores the position of a reader; an empty one removes the entry of a reader that is gone.
pub(super) fn remember(cursors: &mut Table<'_, &str, &str>, cursor: &ReaderCursor) -> Result<(), SpoolError> {
    let key = cursor.key.as_str();
    let value = cursor.value.as_str();
    match value {
        "" => cursors.remove(key).map(drop),
        value => cursors.insert(key, value).map(drop),
    }
    .map_err(database)
}
