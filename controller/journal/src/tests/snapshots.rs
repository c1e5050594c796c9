//! Snapshots: a restart gives the same state after removal, damage or interruption.

use std::time::Duration;

use rankguard_core::{DecisionState, step};
use rankguard_faults::Catalogue;
use rankguard_model::{ClockOffset, NodeId, NodeInfo};

use super::*;
use crate::snapshot::{PARTS, RECORDS};

/// Returns a retention with frequent snapshots and few entries.
fn small() -> JournalRetention {
    JournalRetention {
        max_age: Duration::from_secs(3_600),
        max_bytes: 4_000,
        snapshot_entries: 10,
        snapshot_bytes: 1 << 20,
    }
}

/// Returns joins, cordons and uncordons, which change the state.
fn traced(number: i64) -> StampedEvent {
    let node = NodeId::from(format!("n{}", number % 7));
    let event = match number % 3 {
        0 => Event::NodeCordoned {
            node,
            reason: format!("for the {number}th time"),
        },
        1 => Event::NodeUncordoned { node },
        _ => Event::NodeJoined {
            info: NodeInfo {
                node,
                incarnation: number.to_string(),
                boot_id: String::new(),
                host: "127.0.0.1".to_owned(),
                peer_address: String::new(),
                image_address: String::new(),
                slots: 2,
                failure_domain: String::new(),
                running: Vec::new(),
                clock: ClockOffset::default(),
                history: rankguard_model::NodeHistory::default(),
                lease_ms: 0,
                is_kernel_log_first: false,
            },
        },
    };
    StampedEvent {
        at: Timestamp::from_millis(number),
        event,
    }
}

/// Journal with the state of its events.
struct Written {
    journal: Journal,
    state: DecisionState,
}

impl Written {
    fn open(path: &Path) -> Self {
        let mut journal = open(path);
        let restored = journal.restore().expect("a sound journal");
        assert!(restored.problems.is_empty(), "{:?}", restored.problems);
        Self {
            journal,
            state: restored.state,
        }
    }

    /// Appends events as the controller does: with snapshots when they are due, and slices of removal.
    fn append(&mut self, numbers: std::ops::Range<i64>, retention: &JournalRetention) {
        for number in numbers {
            let stamped = traced(number);
            self.journal.append(&[encode(&stamped).expect("JSON")]).expect("room");
            step(&mut self.state, &stamped);
            if self.journal.is_snapshot_due(retention, stamped.at) {
                self.snapshot(stamped.at);
            }
            while !self.journal.trim(retention, stamped.at).expect("room") {}
        }
    }

    fn snapshot(&mut self, at: Timestamp) {
        let entry = self.journal.entries();
        let bytes = self.journal.entry_bytes();
        let mut snapshot = encode_snapshot(&self.state, entry, at, bytes).expect("a state is JSON");
        while !self.journal.store_slice(&mut snapshot).expect("room") {}
    }
}

/// Returns the state after a replay from the beginning.
fn expected(to: i64) -> DecisionState {
    let mut state = DecisionState::new(Policy::default(), Catalogue::builtin());
    for number in 1..to {
        step(&mut state, &traced(number));
    }
    state
}

#[test]
fn rg_5_a_restart_from_a_snapshot_gives_the_state_that_all_events_give() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut written = Written::open(&path);
    written.append(1..100, &small());
    let bytes = written.journal.entry_bytes();
    drop(written);
    let mut journal = open(&path);
    let restored = journal.restore().expect("a compacted journal");
    assert!(restored.state == expected(100), "another state");
    assert_eq!(restored.last, Timestamp::from_millis(99));
    assert!(restored.replayed <= 10, "{}", restored.replayed);
    assert_eq!((journal.entries(), journal.entry_bytes()), (99, bytes));
    // It continues as if nothing had been removed.
    let mut written = Written {
        journal,
        state: restored.state,
    };
    written.append(100..150, &small());
    assert!(written.state == expected(150));
}

#[test]
fn rg_9_entries_and_snapshots_beyond_the_limits_are_removed_and_the_file_stays_small() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut written = Written::open(&path);
    let mut sizes = Vec::new();
    for number in 1..2_400 {
        // These events have no effect on the state, so that only the journal can grow.
        written.journal.append(&[entry(number)]).expect("room");
        let at = Timestamp(number);
        if written.journal.is_snapshot_due(&small(), at) {
            written.snapshot(at);
        }
        while !written.journal.trim(&small(), at).expect("room") {}
        if number % 400 == 0 {
            sizes.push(fs::metadata(&path).expect("there").len());
        }
    }
    let held = written.journal.entries() - written.journal.first + 1;
    assert!(held < 60, "{held} entries are held");
    assert!(written.journal.snapshots().len() <= 8);
    assert!(sizes.last() <= sizes.get(1) && sizes.len() > 4, "{sizes:?}");
}

#[test]
fn a_damaged_snapshot_gives_way_to_the_one_before() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut written = Written::open(&path);
    written.append(1..100, &small());
    let newest = written.journal.snapshots().last().expect("snapshots").clone();
    drop(written);
    damage(&path, newest.keys().start);
    let mut journal = open(&path);
    let restored = journal.restore().expect("the one before and its entries");
    assert!(restored.state == expected(100));
    assert!(
        matches!(&restored.problems[..], [JournalError::Snapshot { entry, .. }] if *entry == newest.entry),
        "{:?}",
        restored.problems
    );
    drop(journal);
    let records = open(&path).snapshots().to_vec();
    for record in records {
        damage(&path, record.keys().start);
    }
    let error = open(&path).restore().expect_err("nothing to begin with").to_string();
    assert!(error.contains("no snapshot can be read"), "{error}");
}

/// Overwrites a part of a snapshot.
fn damage(path: &Path, key: u64) {
    let database = Database::open(path).expect("the journal");
    let transaction = database.begin_write().expect("a transaction");
    let mut parts = transaction.open_table(PARTS).expect("the table");
    parts.insert(key, b"{}".as_slice()).expect("room");
    drop(parts);
    transaction.commit().expect("room");
}

/// Simulates a controller that is killed between any two slices.
#[test]
fn rg_5_a_copy_taken_between_any_two_writes_is_a_whole_journal() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let copy = dir.path().join("copy.redb");
    let mut written = Written::open(&path);
    let check = |to: i64| {
        fs::copy(&path, &copy).expect("room");
        let state = open(&copy).restore().expect("whole").state;
        assert!(state == expected(to), "another state after {to} events");
        let read = read(&copy).expect("whole");
        let mut state = *read.begin;
        for stamped in &read.events {
            step(&mut state, stamped);
        }
        assert!(state == expected(to), "readers see another state after {to} events");
    };
    for number in 1..40 {
        let stamped = traced(number);
        written
            .journal
            .append(&[encode(&stamped).expect("JSON")])
            .expect("room");
        step(&mut written.state, &stamped);
        if number % 9 == 0 {
            let entry = written.journal.entries();
            let bytes = written.journal.entry_bytes();
            let mut snapshot = encode_snapshot(&written.state, entry, stamped.at, bytes).expect("JSON");
            // Never completed: its process ends here.
            if number % 2 == 0 {
                snapshot.record.bytes = 17 * crate::snapshot::PART_BYTES as u64;
                written.journal.store_slice(&mut snapshot).expect("room");
            } else {
                while !written.journal.store_slice(&mut snapshot).expect("room") {}
            }
            check(number + 1);
        }
        let mut steps = 0;
        while !written.journal.trim(&small(), stamped.at).expect("room") {
            check(number + 1);
            steps += 1;
            assert!(steps < 50, "it never ends");
        }
    }
    assert!(written.journal.first > 1, "nothing was removed");
}

#[test]
fn readers_of_a_compacted_journal_begin_with_its_oldest_snapshot_while_it_is_written() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut written = Written::open(&path);
    written.append(1..120, &small());
    assert!(in_use(&path));
    let mut begin = None;
    let mut entries = Vec::new();
    scan_from(
        &path,
        |beginning| begin = Some(beginning),
        |entry| {
            entries.push(entry?);
            Ok(())
        },
    )
    .expect("a journal in use");
    let begin = begin.expect("a beginning");
    let next = i64::try_from(begin.removed).expect("few") + 1;
    assert_eq!(entries, (next..120).map(traced).collect::<Vec<_>>());
    assert!(begin.removed > 10 && begin.removed_to == Some(Timestamp::from_millis(next - 1)));
    assert!(begin.state == expected(next));
    let mut end = None;
    let summary = analyse_journal(&path, |record| {
        if let JournalRecord::Problem(problem) = record {
            end = Some(problem);
        }
    });
    assert_eq!(summary.expect("readable").removed, begin.removed);
    assert!(end.is_none(), "{end:?}");
}

/// Programs without snapshot support refuse a journal that they would misread.
#[test]
fn a_journal_without_its_first_entries_has_another_format() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut written = Written::open(&path);
    let format = |journal: &Journal| {
        let view = journal.view().expect("readable");
        let meta = view.open_table(META).expect("the table");
        let version = meta.get(META_VERSION).expect("readable").expect("there");
        version.value().to_vec()
    };
    written.append(1..12, &small());
    assert_eq!(format(&written.journal), b"1");
    written.append(12..100, &small());
    assert_eq!(format(&written.journal), b"2");
    let view = written.journal.view().expect("readable");
    assert!(view.open_table(RECORDS).is_ok());
}
