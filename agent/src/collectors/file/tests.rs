#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::lines::LINE_BYTES_MAX;
use super::opened::IDENTITY;
use super::*;

/// Polls the file, with a new identity check.
fn look(follower: &mut FileFollower) -> Vec<String> {
    follower.checked = None;
    look_at(follower, Instant::now())
}

fn look_at(follower: &mut FileFollower, now: Instant) -> Vec<String> {
    let mut out = Vec::new();
    follower.poll(now, &mut out);
    told(out)
}

fn told(out: Vec<FileEvent>) -> Vec<String> {
    out.into_iter()
        .map(|seen| match seen {
            FileEvent::Line { text, .. } => text,
            FileEvent::Problem { what, .. } => format!("!{what}"),
        })
        .collect()
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = File::options().append(true).create(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_line_comes_when_its_newline_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut follower = FileFollower::new(&path, StartPosition::Beginning);
    assert!(look(&mut follower).is_empty());
    append(&path, b"one\ntw");
    assert_eq!(look(&mut follower), ["one"]);
    append(&path, b"o\r\nthree");
    assert_eq!(look(&mut follower), ["two"]);
    let mut out = Vec::new();
    follower.finish(Instant::now(), &mut out);
    assert_eq!(told(out), ["three"]);
}

#[test]
fn a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"one\n");
    let mut follower = FileFollower::new(&path, StartPosition::Beginning);
    assert_eq!(look(&mut follower), ["one"]);
    append(&path, b"two\nunfinished");
    fs::rename(&path, dir.path().join("log.1")).unwrap();
    append(&path, b"three\n");
    assert_eq!(look(&mut follower), ["two", "unfinished", "three"]);
}

#[test]
fn a_truncated_file_is_read_again_and_said_to_be_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"one\ntwo\n");
    let mut follower = FileFollower::new(&path, StartPosition::Beginning);
    assert_eq!(look(&mut follower).len(), 2);
    fs::write(&path, b"new\n").unwrap();
    let seen = look(&mut follower);
    assert!(seen[0].contains("was truncated from 8 to 4 bytes"), "{seen:?}");
    assert_eq!(seen[1..], ["new"]);
}

#[test]
fn binary_bytes_and_endless_lines_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"\xff\xfe\x00bin\n");
    append(&path, &vec![b'x'; 3 * LINE_BYTES_MAX]);
    append(&path, b"\nafter\n");
    let mut follower = FileFollower::new(&path, StartPosition::Beginning);
    let seen = look(&mut follower);
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0], "\u{fffd}\u{fffd}\0bin");
    assert_eq!(seen[1].len(), LINE_BYTES_MAX);
    assert_eq!(seen[2], "after");
}

#[test]
fn what_cannot_be_followed_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut follower = FileFollower::new(dir.path(), StartPosition::Beginning);
    let seen = look(&mut follower);
    assert_eq!(seen.len(), 1);
    assert!(seen[0].contains("not a regular file"), "{seen:?}");
    assert!(look(&mut follower).is_empty());
}

#[test]
fn a_reader_goes_on_where_the_one_before_stood() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"one\ntwo\nthr");
    let mut first = FileFollower::new(&path, StartPosition::Beginning);
    assert_eq!(look(&mut first), ["one", "two"]);
    let position = first.position().unwrap().to_string();
    append(&path, b"ee\n");
    let mut second = FileFollower::new(&path, StartPosition::At(position.clone()));
    assert_eq!(look(&mut second), ["three"]);
}

/// RG-4.
#[test]
fn a_file_rotated_while_the_reader_was_away_is_read_to_its_end_where_it_still_lies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"one\ntwo\n");
    let mut first = FileFollower::new(&path, StartPosition::Beginning);
    assert_eq!(look(&mut first).len(), 2);
    let position = first.position().unwrap().to_string();
    append(&path, b"three\n");
    fs::rename(&path, dir.path().join("log.1")).unwrap();
    append(&path, b"new\n");
    let mut second = FileFollower::new(&path, StartPosition::At(position.clone()));
    assert_eq!(look(&mut second), ["three", "new"]);
    // The file is now shorter than the stored offset, so that it is not the one that was read.
    fs::write(dir.path().join("log.1"), b"").unwrap();
    let mut third = FileFollower::new(&path, StartPosition::At(position));
    let seen = look(&mut third);
    assert!(seen[0].contains("rotated while the agent was away"), "{seen:?}");
    assert_eq!(seen[1], "new");
}

#[test]
fn a_last_line_without_a_newline_is_handed_out_when_it_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"Segmentation fault");
    let mut follower = FileFollower::new(&path, StartPosition::Beginning);
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    assert!(look_at(&mut follower, start).is_empty());
    append(&path, b" (core");
    assert!(look_at(&mut follower, after(400)).is_empty());
    assert!(look_at(&mut follower, after(800)).is_empty());
    assert_eq!(look_at(&mut follower, after(900)), ["Segmentation fault (core"]);
    append(&path, b" dumped)\n");
    assert_eq!(look_at(&mut follower, after(950)), [" dumped)"]);
}

#[test]
fn a_successor_is_found_within_a_second_although_nothing_is_written_into_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"one\n");
    let mut follower = FileFollower::new(&path, StartPosition::Beginning);
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    assert_eq!(look_at(&mut follower, start), ["one"]);
    append(&path, b"two\n");
    assert_eq!(look_at(&mut follower, after(10)), ["two"]);
    fs::rename(&path, dir.path().join("log.1")).unwrap();
    append(&path, b"three\n");
    assert!(look_at(&mut follower, after(500)).is_empty());
    append(&dir.path().join("log.1"), b"last words\n");
    assert_eq!(look_at(&mut follower, after(1010)), ["last words", "three"]);
}

#[test]
fn a_file_that_cannot_be_read_is_said_once_and_read_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    // Opening a link to itself fails for every user, root included.
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let mut follower = FileFollower::new(&path, StartPosition::Beginning);
    let seen = look(&mut follower);
    assert!(seen.len() == 1 && seen[0].starts_with("!cannot read"), "{seen:?}");
    assert!(look(&mut follower).is_empty());
    fs::remove_file(&path).unwrap();
    append(&path, b"two\n");
    assert_eq!(look(&mut follower), ["two"]);
}

#[test]
fn old_lines_of_unknown_age_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"old\n");
    let mut follower = FileFollower::new(&path, StartPosition::End);
    let seen = look(&mut follower);
    assert!(
        seen.len() == 1 && seen[0].contains("4 bytes of unknown age"),
        "{seen:?}"
    );
    append(&path, b"new\n");
    assert_eq!(look(&mut follower), ["new"]);
    // A file that appears later is new from its first byte.
    let mut later = FileFollower::new(dir.path().join("later"), StartPosition::End);
    assert!(look(&mut later).is_empty());
    append(&dir.path().join("later"), b"first\n");
    assert_eq!(look(&mut later), ["first"]);
}

/// Reads the inotify events and polls the file at the time `now`.
fn hear_at(follower: &mut FileFollower, stirs: &InotifyWatcher, now: Instant) -> Vec<String> {
    stirs.read_events();
    look_at(follower, now)
}

#[test]
fn a_watched_file_is_read_when_it_is_written_to_and_its_successor_found_by_its_going() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"one\n");
    let stirs = InotifyWatcher::open();
    let start = Instant::now();
    let mut follower = FileFollower::new(&path, StartPosition::Beginning).watched_by(&stirs);
    assert_eq!(hear_at(&mut follower, &stirs, start), ["one"]);
    assert!(follower.is_still(start));
    append(&path, b"two\nunfin");
    stirs.read_events();
    assert!(!follower.is_still(start));
    assert_eq!(look_at(&mut follower, start), ["two"]);
    assert!(!follower.is_still(start), "an unfinished line has its time");
    append(&path, b"ished\n");
    assert_eq!(hear_at(&mut follower, &stirs, start), ["unfinished"]);
    fs::write(&path, b"new\n").unwrap();
    let told = hear_at(&mut follower, &stirs, start);
    assert!(
        told.len() == 2 && told[0].contains("was truncated") && told[1] == "new",
        "{told:?}"
    );
    // The file is renamed first; its successor comes later and is found within a second.
    fs::rename(&path, dir.path().join("log.1")).unwrap();
    assert!(hear_at(&mut follower, &stirs, start).is_empty());
    append(&path, b"three\n");
    assert_eq!(hear_at(&mut follower, &stirs, start + IDENTITY), ["three"]);
    append(&path, b"four\n");
    assert_eq!(hear_at(&mut follower, &stirs, start + IDENTITY), ["four"]);
}
