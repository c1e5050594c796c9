//! Journals of earlier programs are read, continued and compacted.
//!
//! `fixtures/format-1.redb` was written by `rankguard controller` of 2026-11-23, before snapshots existed: one agent
//! joined, a job whose rank exits with code 3 was started four times and stopped, and the node was cordoned.

use std::fs;
use std::path::{Path, PathBuf};

use rankguard_core::{Event, Policy, StampedEvent};
use rankguard_journal::{
    JOURNAL_FILE, Journal, JournalRecord, JournalRetention, analyse_journal, encode, encode_snapshot,
};
use rankguard_model::{JobId, JobState, NodeState, Timestamp};

fn copy_of_fixture(dir: &Path) -> PathBuf {
    let path = dir.join(JOURNAL_FILE);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.redb");
    fs::copy(fixture, &path).expect("room");
    path
}

/// Returns a retention that removes entries at once.
fn hardly_anything() -> JournalRetention {
    JournalRetention {
        max_bytes: 1,
        snapshot_entries: 1,
        ..JournalRetention::default()
    }
}

#[test]
fn a_journal_from_before_snapshots_is_restored_continued_and_compacted() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = copy_of_fixture(dir.path());
    let mut journal = Journal::open(&path, &Policy::default()).expect("an old journal");
    let restored = journal.restore().expect("an old journal");
    let status = restored.state.status(restored.last);
    assert_eq!(status.jobs[0].state, JobState::Stopped);
    assert_eq!((status.jobs[0].generation.0, restored.state.cases().len()), (4, 4));
    // Its agent had ended a second before, and silence is detected later.
    assert_eq!(status.nodes[0].state, NodeState::Cordoned);
    let old_entries = journal.entries();
    assert!(journal.snapshot_at().is_none() && restored.replayed == old_entries);

    let mut at = restored.last;
    for _ in 0..3 {
        at = Timestamp(at.0 + 1);
        let job = JobId::from("nobody");
        let stamped = StampedEvent {
            at,
            event: Event::JobCancelled { job, by: None },
        };
        journal.append(&[encode(&stamped).expect("JSON")]).expect("room");
        let entry = journal.entries();
        let bytes = journal.entry_bytes();
        let mut snapshot = encode_snapshot(&restored.state, entry, at, bytes).expect("JSON");
        while !journal.store_slice(&mut snapshot).expect("room") {}
        while !journal.trim(&hardly_anything(), at).expect("room") {}
    }
    drop(journal);
    let mut journal = Journal::open(&path, &Policy::default()).expect("a compacted journal");
    let again = journal.restore().expect("a compacted journal");
    assert!(again.state == restored.state, "another state");
    assert_eq!(journal.entries(), old_entries + 3);
    drop(journal);
    let mut failures = 0;
    let mut problems = Vec::new();
    let end = analyse_journal(&path, |told| match told {
        JournalRecord::Failure(_) => failures += 1,
        JournalRecord::Problem(problem) => problems.push(problem),
        _ => {}
    });
    assert_eq!(end.expect("readable").removed, old_entries + 2);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(failures, 4, "cases of removed events are known from the snapshot");
}
