//! Waits of line readers.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rankguard_model::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait on files before a reader checks the stop flag again.
pub(super) const HEAR: Duration = Duration::from_millis(500);
/// Shortest wait for a line that triage holds.
const LEAST: Duration = Duration::from_millis(5);

/// Returns the time until the next poll: `interval`, or less if a held line is due earlier.
pub(super) fn pause(interval: Duration, due: Option<Timestamp>, now: Timestamp) -> Duration {
    let due = due.map_or(interval, |due| due.since(now));
    interval.min(due.max(LEAST))
}

/// Waits until the file is readable, at most for `most`.
pub(super) fn wait_readable(file: &impl AsFd, most: Duration) {
    wait_for_any([Some(file.as_fd())], most);
}

/// Waits until one of the files is readable, at most for `most`.
pub(super) fn wait_for_any<'a>(files: impl IntoIterator<Item = Option<BorrowedFd<'a>>>, most: Duration) {
    let timeout = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(1),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    let readable = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
    let mut asked: Vec<PollFd<'_>> = files.into_iter().flatten().map(readable).collect();
    // An error only makes the next poll come early; the read that follows reports the cause.
    let _ = poll(&mut asked, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_looks_ends_early_when_something_is_due() {
        let check = |due: Option<i64>, expect_ms: u64| {
            let at = due.map(Timestamp::from_millis);
            let now = Timestamp::from_millis(1_000);
            assert_eq!(
                pause(Duration::from_millis(50), at, now),
                Duration::from_millis(expect_ms)
            );
        };
        check(None, 50);
        check(Some(1_020), 20);
        check(Some(9_000), 50);
        check(Some(900), 5);
    }
}
