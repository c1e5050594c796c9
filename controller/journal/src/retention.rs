//! Retention of snapshots and entries, and the schedule of snapshots.

use std::time::Duration;

use rankguard_model::Timestamp;

use crate::snapshot::SnapshotRecord;

/// Snapshots that are retained. More of them let the journal begin nearer to the limit, and take space.
const SNAPSHOTS_MAX: usize = 8;
/// Newest snapshots that are always retained: a damaged one is replaced by the one before.
const NEWEST_KEPT: usize = 2;
/// Ratio of the bytes of entries since the last snapshot to its size, from which on a snapshot is due.
const SIZE_FACTOR: u64 = 2;
/// Fraction of the retained time after which a snapshot is due in any case.
const AGE_PART: u32 = 8;

/// Retention of the journal, and the snapshot schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalRetention {
    /// Entries older than this may be removed.
    pub max_age: Duration,
    /// Bytes of entries beyond which the oldest are removed regardless of their age.
    pub max_bytes: u64,
    /// Entries after which a snapshot is taken; this bounds the replay at a start.
    pub snapshot_entries: u64,
    /// Bytes of entries after which a snapshot is taken, but not less than twice the size of the last one.
    pub snapshot_bytes: u64,
}

impl JournalRetention {
    /// Returns a retention that keeps all entries, with the default snapshot schedule.
    pub fn unlimited() -> Self {
        Self {
            max_age: Duration::MAX,
            max_bytes: u64::MAX,
            ..Self::default()
        }
    }
}

impl Default for JournalRetention {
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(30 * 86_400),
            max_bytes: 1 << 30,
            snapshot_entries: 20_000,
            snapshot_bytes: 32 << 20,
        }
    }
}

/// Entries after the newest snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalTail {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl JournalRetention {
    /// Returns true if a snapshot is due.
    pub(crate) fn is_due(&self, newest: Option<&SnapshotRecord>, tail: JournalTail, now: Timestamp) -> bool {
        if tail.entries == 0 {
            return false;
        }
        let of_size = newest.map_or(0, |newest| newest.bytes.saturating_mul(SIZE_FACTOR));
        let many = tail.entries >= self.snapshot_entries;
        let large = tail.bytes >= self.snapshot_bytes.max(of_size);
        let old = newest.is_some_and(|newest| now.since(newest.at) >= self.max_age / AGE_PART);
        many || large || old
    }

    /// Returns the serial number of the snapshot with which the journal may begin; `None` if all entries are retained.
    pub(crate) fn beginning(&self, records: &[SnapshotRecord], entry_bytes: u64, now: Timestamp) -> Option<u64> {
        let eligible = records.get(..=records.len().checked_sub(NEWEST_KEPT)?)?;
        let old = |record: &&SnapshotRecord| now.since(record.at) >= self.max_age;
        let by_age = eligible.iter().rfind(old).map(|record| record.serial);
        let fits = |record: &&SnapshotRecord| entry_bytes.saturating_sub(record.entry_bytes) <= self.max_bytes;
        let by_bytes = if entry_bytes > self.max_bytes {
            let fit = eligible.iter().find(fits).or(eligible.last());
            fit.map(|record| record.serial)
        } else {
            None
        };
        by_age.max(by_bytes)
    }

    /// Returns the serial numbers of unneeded snapshots between the oldest and the newest ones: those with the smallest
    /// amount of entries between their neighbours.
    pub(crate) fn superfluous(&self, records: &[SnapshotRecord]) -> Vec<u64> {
        let mut kept: Vec<&SnapshotRecord> = records.iter().collect();
        let mut gone = Vec::new();
        while kept.len() > SNAPSHOTS_MAX {
            let stretch = |at: usize| kept[at + 1].entry_bytes.saturating_sub(kept[at - 1].entry_bytes);
            let Some(at) = (1..kept.len() - NEWEST_KEPT).min_by_key(|at| stretch(*at)) else {
                break;
            };
            gone.push(kept.remove(at).serial);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(serial: u64, day: i64, entry_bytes: u64) -> SnapshotRecord {
        SnapshotRecord {
            serial,
            entry: entry_bytes / 10,
            at: Timestamp::from_millis(day * 86_400_000),
            bytes: 10,
            entry_bytes,
            digest: String::new(),
        }
    }

    fn retention(days: u64, max_bytes: u64) -> JournalRetention {
        JournalRetention {
            max_age: Duration::from_secs(days * 86_400),
            max_bytes,
            ..JournalRetention::default()
        }
    }

    fn day(day: i64) -> Timestamp {
        Timestamp::from_millis(day * 86_400_000)
    }

    #[test]
    fn the_journal_begins_at_the_newest_snapshot_that_is_older_than_the_retained_time() {
        let records: Vec<_> = (1..=5).map(|at| record(at, at as i64, at * 100)).collect();
        let rule = retention(2, 1 << 30);
        assert_eq!(rule.beginning(&records, 550, day(2)), None);
        assert_eq!(rule.beginning(&records, 550, day(4)), Some(2));
        assert_eq!(rule.beginning(&records, 550, day(99)), Some(4), "two snapshots stay");
        assert_eq!(rule.beginning(&records[..1], 550, day(99)), None);
    }

    #[test]
    fn bytes_beyond_the_limit_go_whatever_their_age() {
        let records: Vec<_> = (1..=5).map(|at| record(at, at as i64, at * 100)).collect();
        assert_eq!(retention(99, 550).beginning(&records, 550, day(6)), None);
        assert_eq!(retention(99, 549).beginning(&records, 550, day(6)), Some(1));
        assert_eq!(retention(99, 300).beginning(&records, 550, day(6)), Some(3));
        assert_eq!(retention(99, 1).beginning(&records, 550, day(6)), Some(4));
    }

    #[test]
    fn snapshots_stay_few_and_spread_over_the_entries() {
        let mut records = Vec::new();
        for serial in 1..=100 {
            records.push(record(serial, 0, serial * 100));
            let gone = retention(1, 1 << 30).superfluous(&records);
            records.retain(|record| !gone.contains(&record.serial));
            assert!(records.len() <= SNAPSHOTS_MAX);
        }
        assert_eq!(records[0].serial, 1);
        assert_eq!(records.last().map(|record| record.serial), Some(100));
        let widest = records
            .windows(2)
            .map(|pair| pair[1].entry_bytes - pair[0].entry_bytes)
            .max();
        assert!(widest < Some(5_000), "{widest:?}");
    }

    #[test]
    fn a_snapshot_is_due_by_entries_by_bytes_and_by_age() {
        let rule = JournalRetention {
            snapshot_entries: 10,
            snapshot_bytes: 1_000,
            ..retention(8, 1 << 30)
        };
        let tail = |entries, bytes| JournalTail { entries, bytes };
        assert!(!rule.is_due(None, tail(0, 0), day(50)));
        assert!(!rule.is_due(None, tail(9, 90), day(50)));
        assert!(rule.is_due(None, tail(10, 90), day(50)));
        assert!(rule.is_due(None, tail(9, 1_000), day(50)));
        let newest = record(1, 50, 0);
        assert!(!rule.is_due(Some(&newest), tail(1, 9), day(50)));
        assert!(rule.is_due(Some(&newest), tail(1, 9), day(51)));
        let large = SnapshotRecord {
            bytes: 10_000,
            ..newest
        };
        assert!(
            !rule.is_due(Some(&large), tail(9, 1_000), day(50)),
            "it costs more than it saves"
        );
        assert!(rule.is_due(Some(&large), tail(9, 20_000), day(50)));
    }
}
