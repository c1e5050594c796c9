//! Reads of a journal that another process writes, or that is damaged.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use super::*;

/// Returns an event; every 97th is larger than a page.
fn wide(number: i64) -> StampedEvent {
    let mut event = event(number);
    if number % 97 == 0 {
        event.event = Event::JobCancelled {
            job: JobId::from("j".repeat(30_000)),
            by: None,
        };
    }
    event
}

#[test]
fn a_journal_is_read_while_it_is_written_every_entry_once_and_nothing_is_disturbed() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut journal = open(&path);
    let encoded = |numbers: std::ops::Range<i64>| -> Vec<Vec<u8>> {
        numbers.map(|number| encode(&wide(number)).expect("JSON")).collect()
    };
    journal.append(&encoded(1..5_000)).expect("room");
    let written = AtomicI64::new(5_000);
    let readers = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let journal = &mut journal;
        let written = &written;
        let readers = &readers;
        // Commits small batches without a pause until the readers are done.
        scope.spawn(move || {
            while readers.load(Ordering::Acquire) < 20 {
                let next = written.load(Ordering::Acquire);
                journal.append(&encoded(next..next + 3)).expect("room");
                written.store(next + 3, Ordering::Release);
            }
        });
        for _ in 0..20 {
            let at_least = written.load(Ordering::Acquire);
            let mut next = 1;
            scan(&path, |entry| {
                assert_eq!(entry?, wide(next));
                next += 1;
                Ok(())
            })
            .expect("a journal in use");
            assert!(next >= at_least, "{next} of {at_least}");
            readers.fetch_add(1, Ordering::Release);
        }
    });
    let last = written.into_inner();
    assert_eq!(journal.entries(), u64::try_from(last - 1).expect("few entries"));
    drop(journal);
    let whole: Vec<StampedEvent> = (1..last).map(wide).collect();
    assert_eq!(events(&open(&path)), whole, "the writer's own view");
    assert_eq!(read(&path).expect("closed by now").events, whole);
}

#[test]
fn a_page_that_is_not_what_was_written_is_never_read_as_an_entry() {
    let dir = dir();
    let path = dir.path().join(JOURNAL_FILE);
    let mut journal = open(&path);
    journal
        .append(&(1..=3_000).map(entry).collect::<Vec<_>>())
        .expect("room");
    let sound = fs::read(&path).expect("the file");
    let copy = dir.path().join("damaged.redb");
    // The journal remains open, so its copy is one that was never closed.
    for at in (0..sound.len()).step_by(1_511) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x5a;
        fs::write(&copy, &bytes).expect("room");
        let mut next = 1;
        let outcome = scan(&copy, |entry| {
            if let Ok(stamped) = entry {
                assert_eq!(stamped, event(next), "byte {at}");
                next += 1;
            }
            Ok(())
        });
        assert!(outcome.is_err() || next == 3_001 || next == 1, "byte {at}: {next}");
    }
}
