//! Rate limit by key: a bucket of permits that refills at a constant rate.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most keys that are remembered. When the table is full, the one that has been idle longest is forgotten.
const KEYS_MAX: usize = 4_096;

/// Rate limiter: each key has `burst` permits, of which one returns every `interval`.
#[derive(Debug)]
pub struct RateLimiter {
    burst: u32,
    interval: Duration,
    /// Time at which the bucket of a key is full again.
    full_at: Mutex<BTreeMap<String, Instant>>,
}

impl RateLimiter {
    /// Creates a limiter without used permits.
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self {
            burst,
            interval,
            full_at: Mutex::new(BTreeMap::new()),
        }
    }

    /// Takes a permit; without one, returns the time until the next.
    pub fn take(&self, key: &str, now: Instant) -> Result<(), Duration> {
        let mut table = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = table.get(key).copied().unwrap_or(now).max(now);
        let used = full_at - now;
        let most = self.interval * self.burst.saturating_sub(1);
        if used > most {
            return Err(used - most);
        }
        if table.len() >= KEYS_MAX && !table.contains_key(key) {
            table.retain(|_, full_at| *full_at > now);
            let oldest = table.iter().min_by_key(|(_, full_at)| **full_at);
            let oldest = oldest.map(|(key, _)| key.clone()).filter(|_| table.len() >= KEYS_MAX);
            if let Some(key) = oldest {
                table.remove(&key);
            }
        }
        table.insert(key.to_owned(), full_at + self.interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_one_an_interval() {
        let limiter = RateLimiter::new(3, Duration::from_secs(10));
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(limiter.take("a", start), Ok(()));
        }
        assert_eq!(limiter.take("a", start), Err(Duration::from_secs(10)));
        assert_eq!(limiter.take("b", start), Ok(()), "keys are independent");
        let later = start + Duration::from_secs(10);
        assert_eq!(limiter.take("a", later), Ok(()));
        assert_eq!(limiter.take("a", later), Err(Duration::from_secs(10)));
        let much_later = start + Duration::from_secs(1_000);
        for _ in 0..3 {
            assert_eq!(limiter.take("a", much_later), Ok(()));
        }
        assert!(limiter.take("a", much_later).is_err(), "unused permits do not add up");
    }

    #[test]
    fn the_table_is_bounded() {
        let limiter = RateLimiter::new(1, Duration::from_secs(10));
        let start = Instant::now();
        for number in 0..3 * KEYS_MAX {
            assert_eq!(limiter.take(&number.to_string(), start), Ok(()));
        }
        assert!(limiter.full_at.lock().expect("sound").len() <= KEYS_MAX);
    }
}
