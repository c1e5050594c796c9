//! Retry schedule of failed exports.

use std::time::Duration;

use super::failure::RetryRule;

/// First pause; each further pause is twice as long.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Longest pause that a server may request.
const ASKED_MAX: Duration = Duration::from_secs(300);
/// Attempts before records are dropped: about five minutes.
const TRIES: u32 = 14;

/// Decision after a failed export.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RetryDecision {
    /// Retry after this pause.
    Again(Duration),
    /// Not retryable, or the attempts are used up.
    GiveUp,
}

/// Returns the decision after this many failures of the same export. `spread` (0 to 1) is jitter between agents that
/// lost the same server.
pub(super) fn after(failures: u32, again: RetryRule, spread: f64) -> RetryDecision {
    if failures >= TRIES {
        return RetryDecision::GiveUp;
    }
    match again {
        RetryRule::Never => RetryDecision::GiveUp,
        RetryRule::After(asked) => RetryDecision::Again(asked.min(ASKED_MAX)),
        RetryRule::Later => {
            let doubled = FIRST
                .saturating_mul(1 << failures.saturating_sub(1).min(16))
                .min(LONGEST);
            RetryDecision::Again(doubled.mul_f64(0.5 + spread.clamp(0.0, 1.0) / 2.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_with_growing_pauses_and_an_end() {
        let pauses: Vec<RetryDecision> = (1..=7).map(|failures| after(failures, RetryRule::Later, 1.0)).collect();
        let wanted = [1, 2, 4, 8, 16, 30, 30].map(|seconds| RetryDecision::Again(Duration::from_secs(seconds)));
        assert_eq!(pauses, wanted);
        assert_eq!(
            after(1, RetryRule::Later, 0.0),
            RetryDecision::Again(Duration::from_millis(500))
        );
        assert_eq!(after(TRIES, RetryRule::Later, 1.0), RetryDecision::GiveUp);
        assert_eq!(after(1, RetryRule::Never, 0.5), RetryDecision::GiveUp);
    }

    #[test]
    fn a_server_that_says_when_is_heeded_within_reason() {
        let seven = Duration::from_secs(7);
        assert_eq!(after(3, RetryRule::After(seven), 0.5), RetryDecision::Again(seven));
        assert_eq!(
            after(1, RetryRule::After(Duration::MAX), 0.5),
            RetryDecision::Again(ASKED_MAX)
        );
    }
}
