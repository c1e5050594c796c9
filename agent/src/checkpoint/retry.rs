//! Retry rules of a restore, and the failure that is reported in the end (RG-2).
//!
//! Damage counts when two reads in a row find it, the second without the page cache. Other transient failures are
//! retried until the deadline; then the storage is reported as unavailable, which proves nothing about the checkpoint.

use std::time::{Duration, Instant};

use rankguard_checkpoint::ReadFailure;

use super::error::RankServiceError;

/// First and longest pause between attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Pause from which on a retry is reported: shorter failures pass unseen.
const REPORTED: Duration = Duration::from_secs(1);

/// Pause between a read that found damage and the one that confirms it: time for a repair or a server failover.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// Retry state of one restore.
#[derive(Debug)]
pub(super) struct RestoreRetry {
    until: Instant,
    pause: Duration,
    found_damage: bool,
}

/// Decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestoreDecision {
    /// Retry after this pause.
    After(Duration),
    /// No further attempt.
    Never,
}

impl RestoreRetry {
    /// Allows attempts until `patience` has passed.
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            until: Instant::now() + patience,
            pause: PAUSE.0,
            found_damage: false,
        }
    }

    /// Returns the decision for this failure.
    pub(super) fn next(&mut self, failure: ReadFailure) -> RestoreDecision {
        let before = std::mem::take(&mut self.found_damage);
        match failure {
            ReadFailure::Invalid => RestoreDecision::Never,
            ReadFailure::Damaged if before => RestoreDecision::Never,
            ReadFailure::Damaged => {
                // The confirming read is made even after the deadline.
                self.found_damage = true;
                RestoreDecision::After(CONFIRM_AFTER)
            }
            ReadFailure::Unavailable | ReadFailure::Conflict | ReadFailure::Missing => {
                let pause = self.pause;
                self.pause = PAUSE.1.min(2 * pause);
                if Instant::now() + pause < self.until {
                    RestoreDecision::After(pause)
                } else {
                    RestoreDecision::Never
                }
            }
        }
    }
}

/// Calls `attempt` until it succeeds or no retry is due. `confirm` is called before the read that confirms damage;
/// `is_over` ends the wait early, when no rank needs the result any more; `report` is called once for a failure that lasts.
pub(super) fn try_until<T>(
    patience: Duration,
    mut attempt: impl FnMut() -> Result<T, RankServiceError>,
    mut confirm: impl FnMut(),
    is_over: impl Fn() -> bool,
    report: impl FnOnce(&RankServiceError),
) -> Result<T, RankServiceError> {
    let mut retry = RestoreRetry::new(patience);
    let mut report = Some(report);
    loop {
        let problem = match attempt() {
            Ok(done) => return Ok(done),
            Err(problem) => problem,
        };
        let failure = problem.failure();
        let RestoreDecision::After(pause) = retry.next(failure) else {
            return Err(problem);
        };
        if is_over() {
            // The damage that was found is not confirmed.
            return Err(RankServiceError::Fenced);
        }
        tracing::warn!(%problem, %failure, ?pause, "a restore is tried again");
        if lasts(failure, pause)
            && let Some(report) = report.take()
        {
            report(&problem);
        }
        std::thread::sleep(pause);
        if failure == ReadFailure::Damaged {
            confirm();
        }
    }
}

/// Returns true if a failure before a pause is worth a report: it has lasted for a while.
fn lasts(failure: ReadFailure, pause: Duration) -> bool {
    failure != ReadFailure::Damaged && pause >= REPORTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rg_2_damage_counts_when_two_reads_in_a_row_find_it() {
        let mut retry = RestoreRetry::new(Duration::ZERO);
        assert_eq!(retry.next(ReadFailure::Damaged), RestoreDecision::After(CONFIRM_AFTER));
        assert_eq!(retry.next(ReadFailure::Damaged), RestoreDecision::Never);
        let mut retry = RestoreRetry::new(Duration::from_secs(60));
        assert_eq!(retry.next(ReadFailure::Damaged), RestoreDecision::After(CONFIRM_AFTER));
        assert_eq!(retry.next(ReadFailure::Unavailable), RestoreDecision::After(PAUSE.0));
        assert_eq!(
            retry.next(ReadFailure::Damaged),
            RestoreDecision::After(CONFIRM_AFTER),
            "not in a row"
        );
        assert_eq!(retry.next(ReadFailure::Damaged), RestoreDecision::Never);
    }

    #[test]
    fn a_failure_that_lasts_is_reported_and_one_that_passes_soon_is_not() {
        let mut retry = RestoreRetry::new(Duration::from_secs(3600));
        let mut next = || match retry.next(ReadFailure::Missing) {
            RestoreDecision::After(pause) => lasts(ReadFailure::Missing, pause),
            RestoreDecision::Never => panic!("it is tried for an hour"),
        };
        assert_eq!([next(), next(), next(), next()], [false, false, false, true]);
        assert!(!lasts(ReadFailure::Damaged, CONFIRM_AFTER), "it is proven first");
    }

    #[test]
    fn what_may_pass_is_tried_until_the_deadline_and_what_no_copy_can_give_is_not() {
        let mut retry = RestoreRetry::new(Duration::from_secs(3600));
        let pauses: Vec<RestoreDecision> = (0..8).map(|_| retry.next(ReadFailure::Unavailable)).collect();
        assert_eq!(pauses[0], RestoreDecision::After(PAUSE.0));
        assert_eq!(pauses[7], RestoreDecision::After(PAUSE.1));
        assert_eq!(retry.next(ReadFailure::Invalid), RestoreDecision::Never);
        assert_eq!(
            RestoreRetry::new(Duration::ZERO).next(ReadFailure::Unavailable),
            RestoreDecision::Never
        );
    }
}
