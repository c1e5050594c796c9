use std::collections::VecDeque;

use rankguard_model::{EvidenceBody, EvidenceSource};

use super::*;
use crate::collectors::testing::{commit, rank, reporter, run, told};

/// Scripted results of reads; the end of the ring when none is left.
#[derive(Debug, Default)]
struct Script(VecDeque<io::Result<String>>);

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let next = self
            .0
            .pop_front()
            .unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
        buffer[..next.len()].copy_from_slice(next.as_bytes());
        Ok(next.len())
    }
}

const SECOND: i64 = 1_000_000_000;
const BOOT: Timestamp = Timestamp(1_000_000 * SECOND);

fn record(seq: u64, at_s: u64, text: &str) -> io::Result<String> {
    Ok(format!("4,{seq},{},-;{text}\n SUBSYSTEM=pci\n", at_s * 1_000_000))
}

fn overwritten() -> io::Result<String> {
    Err(io::ErrorKind::BrokenPipe.into())
}

const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python, GPU has fallen off the bus.";
const KILL: &str =
    "Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0";

/// Polls at `seconds` after boot, and again when everything that is held is due.
fn look<R: Read>(ring: &mut RingReader<R>, seconds: i64, reporter: &LineReporter) -> Vec<PendingEvidence> {
    let now = Timestamp(BOOT.0 + seconds * SECOND);
    ring.look(now, now, reporter).expect("the ring can be read");
    for later in [3, 6] {
        let then = Timestamp(now.0 + later * SECOND);
        ring.look(then, then, reporter).expect("the ring can be read");
    }
    commit(reporter)
}

fn start(records: Vec<io::Result<String>>, reporter: &LineReporter) -> RingReader<Script> {
    let position = RingPosition::of_this_boot("b1", reporter.stored(RingReader::<Script>::KEY).as_deref());
    RingReader::new(Script(records.into()), position, BOOT, reporter)
}

/// RG-4.
#[test]
fn overwritten_records_are_counted_by_the_number_of_the_next_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let records = vec![record(7, 10, "usb: new device"), overwritten(), record(12, 11, XID)];
    let mut ring = start(records, &reporter);
    let seen: Vec<String> = look(&mut ring, 12, &reporter).iter().map(told).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen[0].starts_with("node a | - | gap Some(4): kernel log records before 12"),
        "{seen:?}"
    );
    assert!(
        seen[1].starts_with("node a, gpu 0000:9b:00 | gpu-fallen-off-bus | NVRM: Xid"),
        "{seen:?}"
    );
}

#[test]
fn records_lost_before_the_first_one_are_a_gap_of_unknown_size() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let mut ring = start(vec![overwritten(), record(900, 10, "usb: new device")], &reporter);
    let seen: Vec<String> = look(&mut ring, 12, &reporter).iter().map(told).collect();
    assert_eq!(
        seen,
        ["node a | - | gap None: kernel log records were overwritten before they could be read"]
    );
}

/// RG-4.
#[test]
fn a_record_that_cannot_be_read_is_a_gap() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let mut ring = start(vec![Ok(format!("4;{XID}\n")), record(8, 11, XID)], &reporter);
    let seen: Vec<String> = look(&mut ring, 12, &reporter).iter().map(told).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(
        seen[0],
        "node a | - | gap Some(1): a kernel log record has no readable head"
    );
}

#[test]
fn a_restart_in_the_same_boot_neither_repeats_nor_skips() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let mut first = start(vec![record(7, 10, XID)], &reporter);
    assert_eq!(look(&mut first, 12, &reporter).len(), 1);
    let records = || vec![record(7, 10, XID), record(8, 20, KILL)];
    let mut second = start(records(), &reporter);
    let seen: Vec<String> = look(&mut second, 30, &reporter).iter().map(told).collect();
    assert!(seen.len() == 1 && seen[0].contains("Killed process"), "{seen:?}");
    // Another boot has other records under the same numbers.
    let position = RingPosition::of_this_boot("b2", reporter.stored(RingReader::<Script>::KEY).as_deref());
    let mut third = RingReader::new(Script(records().into()), position, BOOT, &reporter);
    assert_eq!(look(&mut third, 30, &reporter).len(), 2);
}

#[test]
fn what_triage_still_holds_is_read_again_after_a_crash() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let mut first = start(vec![record(7, 10, XID)], &reporter);
    first
        .look(
            Timestamp(BOOT.0 + 12 * SECOND),
            Timestamp(BOOT.0 + 12 * SECOND),
            &reporter,
        )
        .expect("the ring can be read");
    assert!(commit(&reporter).is_empty(), "it is held back for company");
    let mut second = start(vec![record(7, 10, XID)], &reporter);
    assert_eq!(look(&mut second, 13, &reporter).len(), 1);
}

/// RG-7: the cause of an exit is reported before the exit, and only once.
#[test]
fn an_exit_waits_for_no_company_of_a_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let mut ring = start(vec![record(7, 10, XID), record(8, 10, KILL)], &reporter);
    let now = Timestamp(BOOT.0 + 12 * SECOND);
    ring.report_all(now, now, &reporter).expect("the ring can be read");
    assert_eq!(commit(&reporter).len(), 2);
    assert_eq!(look(&mut ring, 20, &reporter), []);
    let mut second = start(vec![record(7, 10, XID), record(8, 10, KILL)], &reporter);
    assert_eq!(look(&mut second, 21, &reporter), [], "the position is behind them");
}

#[test]
fn a_kill_lands_on_the_rank_whose_process_it_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    run(&reporter.roster, &rank(3), 4711);
    let mut ring = start(vec![record(1, 10, KILL)], &reporter);
    let seen: Vec<String> = look(&mut ring, 12, &reporter).iter().map(told).collect();
    assert!(
        seen[0].starts_with("job llm, rank 3 on node a (generation 1) | host-oom-kill |"),
        "{seen:?}"
    );
}

#[test]
fn records_are_dated_by_the_kernels_clock_unless_it_cannot_be_right() {
    let check = |records: Vec<io::Result<String>>, expect_s: i64| {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let mut ring = start(records, &reporter);
        let seen = look(&mut ring, 500_000, &reporter);
        assert_eq!(seen[0].at, Timestamp(BOOT.0 + expect_s * SECOND));
    };
    // A record from before the agent's start: its own stamp is used.
    check(vec![record(1, 100, XID)], 100);
    // A record written just now but stamped days ago: the stamp is not used.
    check(
        vec![Err(io::ErrorKind::WouldBlock.into()), record(1, 100, XID)],
        500_003,
    );
    check(
        vec![Err(io::ErrorKind::WouldBlock.into()), record(1, 499_990, XID)],
        499_990,
    );
    // A stamp from the future.
    check(vec![record(1, 900_000, XID)], 500_000);
}

#[test]
fn an_error_that_does_not_pass_ends_the_reading() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let mut ring = start(vec![Err(io::ErrorKind::PermissionDenied.into())], &reporter);
    let error = ring.look(BOOT, BOOT, &reporter).expect_err("not permitted");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

/// A wall clock that is set back must not delay what triage holds.
#[test]
fn a_step_of_the_wall_clock_holds_nothing_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let mut ring = start(vec![record(7, 10, XID)], &reporter);
    let at = |seconds: i64| Timestamp(BOOT.0 + seconds * SECOND);
    ring.look(at(7_200), at(12), &reporter).expect("the ring can be read");
    assert!(commit(&reporter).is_empty(), "it is held back for company");
    ring.look(at(13), at(13), &reporter).expect("the ring can be read");
    assert_eq!(commit(&reporter).len(), 1);
}

/// Storm of a failing device: one event repeated, between unknown lines.
struct Flood {
    next: u64,
    records: u64,
}

impl Read for Flood {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.next == self.records {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Ten microseconds a line: 100,000 a second.
        let seq = self.next;
        let micros = 1_000_000 + self.next * 10;
        let text = match seq % 4 {
            0 => format!(
                "NVRM: Xid (PCI:0000:9b:00): 79, pid={}, name=python, GPU has fallen off the bus.",
                4711 + seq % 8
            ),
            1 => format!(
                "pcieport 0000:16:01.0: AER: Corrected error message received from 0000:17:00.{}",
                seq % 3
            ),
            2 => format!("some_driver 0000:17:00.0: queue {seq} is in a state that nobody has seen before"),
            _ => "NVRM: GPU at PCI:0000:9b:00: GPU-00000000-0000-0000-0000-000000000000".to_owned(),
        };
        self.next += 1;
        let line = format!("4,{seq},{micros},-;{text}\n");
        buffer[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

/// RG-4, RG-9: repeated lines are counted and not reported again, and none is lost.
#[test]
fn a_flood_becomes_few_sightings_with_counts() {
    let dir = tempfile::tempdir().expect("a folder");
    let reporter = reporter(EvidenceSource::KernelLog, dir.path());
    let records = 200_000;
    let position = RingPosition::of_this_boot("b1", None);
    let mut ring = RingReader::new(Flood { next: 0, records }, position, BOOT, &reporter);
    let mut all = Vec::new();
    for look in 0.. {
        // The clock follows the lines: a poll takes as long as its records did.
        let micros = 1_000_000 + ring.records.next * 10;
        let now = Timestamp(BOOT.0 + i64::try_from(micros).expect("small") * 1_000);
        ring.look(now, now, &reporter).expect("the ring can be read");
        all.extend(reporter.intake.drain());
        if ring.records.next == records {
            break;
        }
        assert!(look < 1_000, "{} records were read", ring.records.next);
    }
    ring.finish(Timestamp(BOOT.0 + 100 * SECOND), &reporter);
    all.extend(reporter.intake.drain());
    let mut xids = 0;
    for sighting in &all {
        let EvidenceBody::Line { repeats, context, .. } = &sighting.body else {
            panic!("{sighting:?}")
        };
        let is_xid = sighting
            .marks
            .iter()
            .any(|mark| mark.class.as_str() == "gpu-fallen-off-bus");
        xids += if is_xid { u64::from(*repeats) } else { 0 };
        assert!(context.len() <= 64, "{}", context.len());
    }
    assert_eq!(xids, records / 4, "{:?}", all.iter().map(told).collect::<Vec<_>>());
    assert!(all.len() <= 64, "{} sightings", all.len());
}
