//! Durability and error handling of the journal.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use rankguard_core::Event;
use rankguard_model::{JobId, Timestamp, with_causes};
use tempfile::TempDir;

use super::*;

mod attempts;
mod live;
mod snapshots;

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn event(number: i64) -> StampedEvent {
    StampedEvent {
        at: Timestamp(number),
        event: Event::JobCancelled {
            job: JobId::from(format!("job-{number}")),
            by: None,
        },
    }
}

fn entry(number: i64) -> Vec<u8> {
    encode(&event(number)).expect("an event is JSON")
}

fn open(path: &Path) -> Journal {
    Journal::open(path, &Policy::default()).expect("a journal")
}

fn events(journal: &Journal) -> Vec<StampedEvent> {
    let mut events = Vec::new();
    journal.replay(|stamped| events.push(stamped)).expect("a sound journal");
    events
}

#[test]
fn what_was_appended_comes_back_in_order_after_reopening() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut journal = open(&path);
    journal.append(&[entry(1), entry(2)]).expect("room");
    journal.append(&[]).expect("room");
    drop(journal);
    let mut journal = open(&path);
    assert_eq!(journal.entries(), 2);
    journal.append(&[entry(3)]).expect("room");
    let expected: Vec<StampedEvent> = (1..=3).map(event).collect();
    assert_eq!(events(&journal), expected);
    drop(journal);
    let recording = read(dir.path()).expect("a journal that nobody has open");
    assert_eq!(recording.events, expected);
    assert_eq!(recording.policy, Policy::default());
    assert_eq!(read(&path).expect("the file itself"), recording);
}

#[test]
fn a_second_controller_on_one_journal_is_refused_and_a_reader_is_not() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut first = open(&path);
    first.append(&[entry(1)]).expect("room");
    let error = Journal::open(&path, &Policy::default()).expect_err("locked");
    assert!(matches!(error, JournalError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("stop that controller first"), "{error}");
    assert!(in_use(&path) && in_use(dir.path()) && is_journal(&path));
    assert_eq!(read(&path).expect("no leave is asked").events, [event(1)]);
    assert_eq!(policy(&path).expect("the policy"), Policy::default());
    drop(first);
    assert!(!in_use(&path));
    open(&path);
}

#[test]
fn a_journal_of_another_version_is_refused() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    drop(open(&path));
    let database = Database::open(&path).expect("the file just written");
    let transaction = database.begin_write().expect("a transaction");
    let mut meta = transaction.open_table(META).expect("the table");
    meta.insert(META_VERSION, b"3".as_slice()).expect("room");
    drop(meta);
    transaction.commit().expect("room");
    drop(database);
    let error = Journal::open(&path, &Policy::default())
        .expect_err("another version")
        .to_string();
    assert!(
        error.contains("has format 3, and this program reads formats up to 2"),
        "{error}"
    );
}

#[test]
fn a_database_of_somebody_else_is_refused() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let database = Database::create(&path).expect("a writable directory");
    let transaction = database.begin_write().expect("a transaction");
    transaction
        .open_table(TableDefinition::<u64, u64>::new("other"))
        .expect("a table");
    transaction.commit().expect("room");
    drop(database);
    let error = Journal::open(&path, &Policy::default()).expect_err("not a journal");
    assert!(matches!(error, JournalError::NotAJournal { .. }), "{error:?}");
}

#[test]
fn beginning_leaves_nothing_but_the_journal() {
    let dir = dir();
    drop(open(&dir.path().join(JOURNAL_FILE)));
    let names: Vec<_> = fs::read_dir(dir.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(names, [JOURNAL_FILE]);
}

#[test]
fn the_policy_of_a_journal_is_the_one_it_was_begun_with() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let first = Policy {
        settle_ms: 77,
        ..Policy::default()
    };
    drop(Journal::open(&path, &first).expect("a journal"));
    assert_eq!(open(&path).policy(), &first);
}

#[test]
fn an_absent_journal_is_said_to_be_absent_and_not_made() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    assert!(matches!(read(&path), Err(JournalError::Absent { .. })));
    assert!(!path.exists());
}

#[test]
fn a_missing_entry_is_named() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut journal = open(&path);
    journal.append(&[entry(1), entry(2), entry(3)]).expect("room");
    drop(journal);
    let database = Database::open(&path).expect("the journal");
    let transaction = database.begin_write().expect("a transaction");
    transaction
        .open_table(EVENTS)
        .expect("the table")
        .remove(2)
        .expect("readable");
    transaction.commit().expect("room");
    drop(database);
    let error = read(&path).expect_err("a hole");
    assert!(matches!(error, JournalError::Gap { entry: 2, .. }), "{error:?}");
}

/// A copy of the open file stands for the file after a power failure.
#[test]
fn rg_5_a_journal_that_was_never_closed_has_every_commit_that_returned() {
    let (dir, elsewhere) = (dir(), dir());
    let path = dir.path().join(JOURNAL_FILE);
    let mut journal = open(&path);
    for number in 1..=20 {
        journal.append(&[entry(number)]).expect("room");
        let copy = elsewhere.path().join(format!("{number}.redb"));
        fs::copy(&path, &copy).expect("room");
        // Readers repair too: a report may be requested after a crash.
        let seen = match number % 2 {
            0 => read(&copy).expect("a repairable journal").events,
            _ => events(&open(&copy)),
        };
        assert_eq!(seen, (1..=number).map(event).collect::<Vec<_>>());
    }
}

#[test]
fn a_journal_cut_short_anywhere_is_refused_or_whole_and_never_panics() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut journal = open(&path);
    journal.append(&(1..=200).map(entry).collect::<Vec<_>>()).expect("room");
    drop(journal);
    let whole = fs::read(&path).expect("the file");
    let cuts = [
        1,
        3,
        63,
        64,
        100,
        319,
        320,
        4095,
        4096,
        4097,
        8192,
        whole.len() / 2,
        whole.len() - 1,
    ];
    for cut in cuts {
        let copy = dir.path().join("cut.redb");
        fs::write(&copy, &whole[..cut]).expect("room");
        for reading in [false, true] {
            let outcome = if reading {
                read(&copy).map(|recording| recording.events.len())
            } else {
                Journal::open(&copy, &Policy::default()).map(|journal| events(&journal).len())
            };
            match outcome {
                Ok(count) => assert_eq!(count, 200, "cut at {cut}"),
                Err(error) => assert!(error.to_string().contains("cut.redb"), "cut at {cut}: {error}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn foreign_bytes_are_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 1..5000)) {
        let dir = dir();
        let path = dir.path().join(JOURNAL_FILE);
        fs::write(&path, &bytes).expect("room");
        prop_assert!(read(&path).is_err());
        // A process that another test starts holds the lock of the first attempt until it runs its program.
        let error = loop {
            let error = Journal::open(&path, &Policy::default()).expect_err("foreign bytes");
            if !with_causes(&error).contains("is in use by another process") {
                break error;
            }
        };
        prop_assert!(with_causes(&error).contains("is not a journal"), "{}", with_causes(&error));
        prop_assert_eq!(fs::read(&path).expect("still there"), bytes, "a foreign file must stay as it is");
    }
}

const WRITER_PATH: &str = "RANKGUARD_TEST_JOURNAL";

/// Not a test of its own: the process that the next test kills. It prints a number once that entry's commit returned.
#[test]
fn writer_to_be_killed() {
    let Some(path) = std::env::var_os(WRITER_PATH) else {
        return;
    };
    let mut journal = open(Path::new(&path));
    let mut out = std::io::stdout();
    loop {
        let next = i64::try_from(journal.entries()).expect("few entries") + 1;
        journal.append(&[entry(next)]).expect("room");
        writeln!(out, "entry {next}").expect("a reader");
    }
}

#[test]
fn rg_5_a_writer_killed_at_any_moment_leaves_every_entry_it_spoke_of() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut last = 0;
    for round in 1..=8 {
        let mut writer = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "tests::writer_to_be_killed",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(WRITER_PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs twice");
        let spoken = BufReader::new(writer.stdout.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| line.split("entry ").nth(1)?.parse::<u64>().ok())
            // A different number of commits in each round; the kill occurs within the next one.
            .nth(round * 7)
            .expect("it writes until it is killed");
        writer.kill().expect("it runs");
        writer.wait().expect("it was killed");
        let journal = open(&path);
        assert!(
            journal.entries() >= spoken,
            "{} entries, {spoken} were spoken of",
            journal.entries()
        );
        assert!(spoken > last);
        last = spoken;
        let count = i64::try_from(journal.entries()).expect("few entries");
        assert_eq!(events(&journal), (1..=count).map(event).collect::<Vec<_>>());
    }
}
