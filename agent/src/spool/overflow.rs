//! Compaction of a full spool, and renumbering of evidence that was never sent.

use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, NodeId, Sequence};
use redb::{ReadableTable, Table};

use super::table::{self, SpoolRecord};
use super::{SpoolError, database};
use crate::clock;
use crate::pending_evidence::is_droppable;

/// Numbers and bytes that a compaction freed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FreedSpace {
    pub(super) numbers: u64,
    pub(super) bytes: u64,
}

/// Drops the oldest samples and progress after `sent` until the table is at three quarters of `limit`, so that the cost
/// of rewriting is spread over a quarter of the limit.
pub(super) fn compact(
    records: &mut Table<'_, u64, &[u8]>,
    node: &NodeId,
    sent: u64,
    limit: u64,
) -> Result<FreedSpace, SpoolError> {
    let all = read(records)?;
    let total: u64 = all.iter().map(|(_, bytes)| table::cost(bytes)).sum();
    let goal = limit - limit / 4;
    let mut excess = total.saturating_sub(goal);
    let mut kept: Vec<SpoolRecord> = Vec::new();
    let mut dropped = 0_u64;
    let mut gap_at = None;
    let mut first_moved = None;
    for (seq, bytes) in all.iter().filter(|(seq, _)| *seq > sent) {
        first_moved.get_or_insert(*seq);
        let record = SpoolRecord::decode(*seq, node, bytes)?;
        if excess > 0 && is_droppable(&record.0.body) && record.0.marks.is_empty() {
            excess = excess.saturating_sub(table::cost(bytes));
            gap_at.get_or_insert((kept.len(), record.0.at));
            dropped += 1;
        } else {
            kept.push(record);
        }
    }
    // One dropped record would only make room for the gap that reports it.
    if dropped < 2 {
        return Ok(FreedSpace::default());
    }
    if let Some((position, at)) = gap_at {
        let mut gap = gap(
            node.clone(),
            "samples and progress were dropped: the spool is full",
            Some(dropped),
        );
        gap.0.at = at;
        kept.insert(position, gap);
    }
    let first = first_moved.unwrap_or(sent + 1);
    records.retain_in(first.., |_, _| false).map_err(database)?;
    let mut written = 0;
    for (seq, record) in (first..).zip(&kept) {
        written += table::put(records, seq, record)?;
    }
    let before: u64 = all
        .iter()
        .filter(|(seq, _)| *seq >= first)
        .map(|(_, bytes)| table::cost(bytes))
        .sum();
    Ok(FreedSpace {
        numbers: dropped - 1,
        bytes: before.saturating_sub(written),
    })
}

/// Gives every record a number after `beyond`, preceded by a gap with the text `what`.
pub(super) fn renumber_beyond(
    records: &mut Table<'_, u64, &[u8]>,
    node: &NodeId,
    beyond: u64,
    what: &str,
) -> Result<(), SpoolError> {
    let all = read(records)?;
    records.retain(|_, _| false).map_err(database)?;
    table::put(records, beyond + 1, &gap(node.clone(), what, None))?;
    for (seq, (_, bytes)) in (beyond + 2..).zip(&all) {
        records.insert(seq, bytes.as_slice()).map_err(database)?;
    }
    Ok(())
}

fn read(records: &Table<'_, u64, &[u8]>) -> Result<Vec<(u64, Vec<u8>)>, SpoolError> {
    let mut all = Vec::new();
    for entry in records.iter().map_err(database)? {
        let (key, value) = entry.map_err(database)?;
        all.push((key.value(), value.value().to_vec()));
    }
    Ok(all)
}

fn gap(node: NodeId, what: &str, lost: Option<u64>) -> SpoolRecord {
    SpoolRecord(Evidence {
        id: EvidenceId {
            node: node.clone(),
            seq: Sequence(0),
        },
        at: clock::now(),
        source: EvidenceSource::Agent,
        entity: Entity::Node { node },
        body: EvidenceBody::Gap {
            what: what.to_owned(),
            lost,
        },
        marks: Vec::new(),
        synthetic: false,
    })
}
