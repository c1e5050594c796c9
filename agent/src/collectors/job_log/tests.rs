use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rankguard_model::EvidenceBody;
use tempfile::TempDir;

use super::*;
use crate::collectors::testing::{commit, rank, reporter, told};
use crate::pending_evidence::PendingEvidence;

fn append(path: &Path, bytes: &[u8]) {
    let mut file = File::options().append(true).create(true).open(path).expect("opens");
    file.write_all(bytes).expect("is written");
}

/// Returns the reader without its thread.
fn reader(folder: &TempDir, extra: &[PathBuf]) -> JobLogReader {
    let reporter = reporter(EvidenceSource::JobLog, folder.path());
    job_logs(extra, Duration::from_millis(50), reporter, &StopFlag::default()).1
}

fn follow(reader: &mut JobLogReader, number: u32, path: &Path) {
    reader.answer(LogRequest::Follow {
        rank: rank(number),
        paths: vec![path.to_owned()],
    });
}

fn finish(reader: &mut JobLogReader, number: u32) -> Vec<String> {
    let (done, _) = sync_channel(1);
    let rank = rank(number);
    reader.answer(LogRequest::Finish { rank, done });
    commit(&reader.reporter).iter().map(told).collect()
}

const TRACEBACK: &[u8] =
    b"step 12 loss 3.1\nTraceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    \
                           step()\nKeyError: 'lr'\n";

#[test]
fn an_exception_is_one_piece_of_evidence_about_its_rank() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("rank-2.err");
    append(&path, TRACEBACK);
    let mut reader = reader(&dir, &[]);
    follow(&mut reader, 2, &path);
    reader.look(false);
    let seen = finish(&mut reader, 2);
    assert_eq!(
        seen,
        ["job llm, rank 2 on node a (generation 1) | key-error | KeyError: 'lr'"]
    );
    assert!(reader.files.is_empty());
}

/// The rank's exit follows within milliseconds; its last lines must be reported before it.
#[test]
fn an_exception_of_a_living_rank_is_told_and_dated_by_when_it_was_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("rank-0.err");
    let reporter = reporter(EvidenceSource::JobLog, dir.path());
    let intake = reporter.intake.clone();
    let stop = StopFlag::default();
    let (logs, reader) = job_logs(&[], Duration::from_millis(50), reporter, &stop);
    let thread = std::thread::spawn(move || reader.run());
    logs.follow(rank(0), vec![path.clone()]);
    append(&path, TRACEBACK);
    let batch = intake.take(Duration::from_secs(60), 16).sightings;
    assert_eq!(batch.len(), 1);
    // The time is that of the read and not that of the release by triage, which waits 200 ms for repeated lines.
    let held = clock::now().since(batch[0].at);
    assert!(held >= Duration::from_millis(200), "{held:?}");
    stop.stop();
    drop(logs);
    thread.join().expect("the reader does not panic");
}

#[test]
fn last_words_without_a_newline_are_heard() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("rank-1.err");
    append(&path, b"RuntimeError: CUDA error: out of memory");
    let mut reader = reader(&dir, &[]);
    follow(&mut reader, 1, &path);
    reader.look(false);
    assert!(commit(&reader.reporter).is_empty());
    let seen = finish(&mut reader, 1);
    assert!(
        seen.len() == 1 && seen[0].starts_with("job llm, rank 1 on node a"),
        "{seen:?}"
    );
}

/// RG-11.
#[test]
fn binary_output_does_no_harm_and_hides_nothing_that_follows() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("rank-1.out");
    let noise: Vec<u8> = (0..300_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    append(&path, &noise);
    append(&path, b"\n");
    append(&path, TRACEBACK);
    let mut reader = reader(&dir, &[]);
    follow(&mut reader, 1, &path);
    let seen = finish(&mut reader, 1);
    assert!(seen.iter().any(|told| told.ends_with("KeyError: 'lr'")), "{seen:?}");
    assert!(seen.iter().all(|told| told.len() < 32 * 1024));
}

#[test]
fn a_file_that_cannot_be_read_is_one_gap_of_its_rank() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut reader = reader(&dir, &[]);
    follow(&mut reader, 1, dir.path());
    reader.look(false);
    reader.look(false);
    let seen = finish(&mut reader, 1);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(
        seen[0].starts_with("job llm, rank 1 on node a (generation 1) | - | gap None: cannot follow"),
        "{seen:?}"
    );
}

#[test]
fn an_extra_file_is_read_from_its_end_and_after_a_restart_from_where_the_agent_stood() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("launcher.log");
    append(&path, b"ValueError: old news\n");
    let mut first = reader(&dir, std::slice::from_ref(&path));
    first.look(false);
    append(&path, b"ValueError: new\n");
    first.look(true);
    let seen: Vec<String> = commit(&first.reporter).iter().map(told).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen[0].contains("21 bytes of unknown age") && seen[1].ends_with("ValueError: new"),
        "{seen:?}"
    );
    let reporter = first.reporter.clone();
    drop(first);
    append(&path, b"ValueError: while away\n");
    fs::rename(&path, dir.path().join("launcher.log.1")).expect("renamed");
    append(&path, b"ValueError: after rotation\n");
    let extra = std::slice::from_ref(&path);
    let mut second = job_logs(extra, Duration::from_millis(50), reporter, &StopFlag::default()).1;
    second.look(true);
    let batch: Vec<PendingEvidence> = commit(&second.reporter);
    let seen: Vec<String> = batch.iter().map(told).collect();
    assert!(seen.iter().all(|told| told.starts_with("node a |")), "{seen:?}");
    let repeats = |sighting: &PendingEvidence| match sighting.body {
        EvidenceBody::Line { repeats, .. } => repeats,
        _ => 0,
    };
    assert_eq!(batch.iter().map(repeats).sum::<u32>(), 2, "{seen:?}");
    assert!(seen[0].ends_with("ValueError: while away"), "{seen:?}");
}

#[test]
fn many_files_are_looked_at_less_often_and_never_rarely() {
    let wait = |files| unhurried(Duration::from_millis(50), files).as_millis();
    assert_eq!([0, 10, 64, 5_000].map(wait), [50, 50, 320, 500]);
}

/// Content that exists at the first search for a pattern is of unknown age; a file that matches later is new, also if
/// it appeared while no agent ran.
#[test]
fn files_that_match_a_pattern_are_followed_from_when_they_come_to_when_they_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    append(&at("old.log"), b"ValueError: of unknown age\n");
    let mut first = reader(&dir, &[at("*.log")]);
    let (mut seeker, _) = first.seeker.take().expect("there is a pattern");
    first.take(seeker.look());
    append(&at("old.log"), b"ValueError: appended\n");
    append(&at("new.log"), b"ValueError: new\n");
    first.take(seeker.look());
    first.look(true);
    let seen: Vec<String> = commit(&first.reporter).iter().map(told).collect();
    let says = |words: &str| seen.iter().filter(|told| told.ends_with(words)).count();
    assert!(seen[0].contains("27 bytes of unknown age in 1 job logs"), "{seen:?}");
    assert_eq!((seen.len(), says("appended"), says("new")), (3, 1, 1), "{seen:?}");
    fs::remove_file(at("new.log")).expect("removed");
    first.take(seeker.look());
    assert_eq!(first.files.len(), 1);
    assert!(commit(&first.reporter).is_empty());
    let reporter = first.reporter.clone();
    assert_eq!(
        reporter.stored(&key_of(&at("new.log"))),
        None,
        "whoever is gone is forgotten"
    );
    drop(first);
    append(&at("old.log"), b"ValueError: while away\n");
    append(&at("newer.log"), b"ValueError: made while away\n");
    let extra = [at("*.log")];
    let mut second = job_logs(&extra, Duration::from_millis(50), reporter, &StopFlag::default()).1;
    let (mut seeker, _) = second.seeker.take().expect("there is a pattern");
    second.take(seeker.look());
    second.look(true);
    let mut seen: Vec<String> = commit(&second.reporter).iter().map(told).collect();
    seen.sort();
    assert!(
        seen.len() == 2
            && seen[0].ends_with("ValueError: made while away")
            && seen[1].ends_with("ValueError: while away"),
        "{seen:?}"
    );
}

#[test]
fn the_output_of_a_rank_that_matches_a_pattern_is_read_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("rank-2.log");
    let mut reader = reader(&dir, &[dir.path().join("*.log")]);
    let (mut seeker, _) = reader.seeker.take().expect("there is a pattern");
    reader.take(seeker.look());
    append(&path, TRACEBACK);
    follow(&mut reader, 2, &path);
    reader.take(seeker.look());
    assert_eq!(finish(&mut reader, 2).len(), 1);
    append(&dir.path().join("other.log"), b"step 1\n");
    reader.take(seeker.look());
    reader.look(true);
    assert!(commit(&reader.reporter).is_empty());
}
