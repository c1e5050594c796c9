#![allow(clippy::unwrap_used)]

use rankguard_model::{ProcessExit, Step};

use super::*;

fn progress(step: u64) -> PendingEvidence {
    let body = EvidenceBody::Progress {
        step: Step(step),
        loss: Some(f64::NAN),
        step_ms: 1.0,
        own_ms: None,
    };
    PendingEvidence::now(EvidenceSource::Ranks, Entity::Unknown, body)
}

fn exit(pid: u32) -> PendingEvidence {
    let exit = ProcessExit::Signal(9);
    PendingEvidence::now(
        EvidenceSource::Ranks,
        Entity::Unknown,
        EvidenceBody::RankExited {
            pid,
            exit,
            ended_by_agent: false,
        },
    )
}

fn open(dir: &Path, limit: u64) -> Spool {
    Spool::open(&dir.join("spool.redb"), NodeId::from("n1"), limit).unwrap()
}

fn numbers(spool: &Spool) -> Vec<u64> {
    let all = spool.send_after(spool.epoch(), Sequence(0), usize::MAX).unwrap();
    all.iter().map(|evidence| evidence.id.seq.0).collect()
}

/// RG-4.
#[test]
fn numbers_have_no_gaps_and_survive_acknowledgement_and_restart() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), 1 << 20);
    assert_eq!(spool.append(&[exit(1), exit(2)], &[]).unwrap(), Sequence(2));
    spool.ack(Sequence(2), None).unwrap();
    assert_eq!(spool.append(&[exit(3)], &[]).unwrap(), Sequence(3));
    drop(spool);
    let spool = open(dir.path(), 1 << 20);
    assert_eq!(numbers(&spool), [3]);
    assert_eq!(spool.unacknowledged(), 1);
    spool.ack(Sequence(3), None).unwrap();
    assert_eq!(spool.append(&[exit(4)], &[]).unwrap(), Sequence(4));
}

#[test]
fn a_second_agent_on_the_same_directory_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(dir.path(), 1 << 20);
    let second = Spool::open(&dir.path().join("spool.redb"), NodeId::from("n1"), 1 << 20);
    assert!(matches!(second, Err(SpoolError::InUse { .. })));
}

/// RG-4: failures are retained, the count of dropped records is reported, and the numbers have no gaps.
#[test]
fn a_full_spool_drops_unsent_progress_first_and_says_how_many() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), 8_000);
    let mut appended = 0;
    for step in 0..500 {
        spool.append(&[progress(step)], &[]).unwrap();
        appended += 1;
        if step % 100 == 0 {
            spool.append(&[exit(u32::try_from(step).unwrap())], &[]).unwrap();
            appended += 1;
        }
    }
    let all = spool.send_after(spool.epoch(), Sequence(0), usize::MAX).unwrap();
    let expected: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!(all.iter().map(|e| e.id.seq.0).collect::<Vec<_>>(), expected);
    let exits = all
        .iter()
        .filter(|e| matches!(e.body, EvidenceBody::RankExited { .. }))
        .count();
    assert_eq!(exits, 5);
    let gaps: Vec<u64> = all
        .iter()
        .filter_map(|e| match e.body {
            EvidenceBody::Gap { lost, .. } => lost,
            _ => None,
        })
        .collect();
    let lost: u64 = gaps.iter().sum();
    assert_eq!(all.len() as u64 - gaps.len() as u64 + lost, appended);
    let newest = all.iter().rev().find_map(|e| match e.body {
        EvidenceBody::Progress { step, .. } => Some(step),
        _ => None,
    });
    assert_eq!(newest, Some(Step(499)));
}

/// Evidence that may have been sent keeps its number; then new samples are rejected and failures are still accepted.
#[test]
fn a_full_spool_never_renumbers_what_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), 4_000);
    for step in 0..20 {
        spool.append(&[progress(step)], &[]).unwrap();
    }
    let sent = spool.send_after(spool.epoch(), Sequence(0), usize::MAX).unwrap();
    for step in 20..200 {
        spool.append(&[progress(step)], &[]).unwrap();
    }
    spool.append(&[exit(7)], &[]).unwrap();
    let now = spool.send_after(spool.epoch(), Sequence(0), usize::MAX).unwrap();
    for (before, after) in sent.iter().zip(&now) {
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }
    assert!(matches!(
        now.last().unwrap().body,
        EvidenceBody::RankExited { pid: 7, .. }
    ));
    let lost: u64 = now
        .iter()
        .filter_map(|e| match e.body {
            EvidenceBody::Gap { lost, .. } => lost,
            _ => None,
        })
        .sum();
    let steps = now
        .iter()
        .filter(|e| matches!(e.body, EvidenceBody::Progress { .. }))
        .count() as u64;
    assert_eq!(steps + lost, 200);
}

#[test]
fn a_lost_state_directory_does_not_make_new_evidence_look_like_old() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), 1 << 20);
    spool.append(&[exit(1), exit(2), exit(3)], &[]).unwrap();
    assert_eq!(spool.joined(Sequence(2), &[]).unwrap(), SpoolJoin::Continues);
    assert_eq!(numbers(&spool), [3, 4, 5, 6]);
    assert_eq!(spool.append(&[exit(4)], &[]).unwrap(), Sequence(7));
    // A later join of the same spool only acknowledges.
    assert_eq!(spool.joined(Sequence(6), &[]).unwrap(), SpoolJoin::Continues);
    assert_eq!(numbers(&spool), [7]);
}

#[test]
fn a_cursor_is_stored_with_the_evidence_it_belongs_to() {
    use crate::pending_evidence::ReaderCursor;
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), 1 << 20);
    let cursor = ReaderCursor {
        key: "kernel".to_owned(),
        value: "17".to_owned(),
    };
    spool.append(&[exit(1).with_cursor(Some(cursor))], &[]).unwrap();
    drop(spool);
    assert_eq!(
        open(dir.path(), 1 << 20).cursor("kernel").unwrap().as_deref(),
        Some("17")
    );
}

/// What reports a full disk cannot be written to it otherwise.
#[test]
fn room_is_kept_for_the_report_of_a_full_disk_and_given_up_once() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), 1 << 20);
    spool.keep_reserve();
    let kept = dir.path().join("spool.reserve");
    assert_eq!(std::fs::metadata(&kept).unwrap().len(), RESERVE_BYTES);
    assert!(spool.free_reserve());
    assert!(!kept.exists() && !spool.free_reserve());
    spool.keep_reserve();
    assert!(kept.exists(), "there is room again");
}
