//! Rate limit of a rank's messages. A rank that exceeds it is read more slowly: its socket fills, and its client drops
//! step marks.

use std::time::{Duration, Instant};

/// Token bucket that may be overdrawn.
#[derive(Debug)]
pub(super) struct TokenBucket {
    /// Capacity in tokens.
    burst: f64,
    /// Refill rate in tokens per second.
    rate: f64,
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub(super) fn new(burst: u32, rate: u32, now: Instant) -> Self {
        Self {
            burst: f64::from(burst),
            rate: f64::from(rate),
            tokens: f64::from(burst),
            filled: now,
        }
    }

    /// Takes `count` tokens; returns the wait until the balance is not negative any more.
    pub(super) fn take(&mut self, count: f64, now: Instant) -> Duration {
        let back = now.saturating_duration_since(self.filled).as_secs_f64() * self.rate;
        self.filled = now;
        self.tokens = (self.tokens + back).min(self.burst) - count;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-self.tokens / self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_follows_waits_for_its_rate() {
        let start = Instant::now();
        let mut throttle = TokenBucket::new(10, 100, start);
        for _ in 0..10 {
            assert_eq!(throttle.take(1.0, start), Duration::ZERO);
        }
        assert_eq!(throttle.take(1.0, start), Duration::from_millis(10));
        assert_eq!(throttle.take(1.0, start), Duration::from_millis(20));
        assert_eq!(
            throttle.take(1.0, start + Duration::from_secs(9)),
            Duration::ZERO,
            "it fills again"
        );
    }
}
