//! How readers of lines wait for the next one.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rankguard_model::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long the end of the agent may go unheard by whoever waits for files.
pub(super) const HEAR: Duration = Duration::from_millis(500);
/// The shortest wait for something that is held back.
const LEAST: Duration = Duration::from_millis(5);

/// Time until the next look: the interval, or less when something is due.
pub(super) fn pause(interval: Duration, due: Option<Timestamp>, now: Timestamp) -> Duration {
    let due = due.map_or(interval, |due| due.since(now));
    interval.min(due.max(LEAST))
}

/// Waits until there is something to read, for so long at most.
pub(super) fn wait_readable(file: &impl AsFd, most: Duration) {
    wait_for_any([Some(file.as_fd())], most);
}

/// Waits until one of them can be read, for so long at most.
pub(super) fn wait_for_any<'a>(files: impl IntoIterator<Item = Option<BorrowedFd<'a>>>, most: Duration) {
    let timeout = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(1),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    let readable = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
    let mut asked: Vec<PollFd<'_>> = files.into_iter().flatten().map(readable).collect();
    // An error only means that the next look comes early; the read that follows tells what is wrong.
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
