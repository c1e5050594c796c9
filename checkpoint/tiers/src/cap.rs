//! Bandwidth cap over all copies that leave a node, shared by all senders.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// Burst of a cap: after this idle time or more, the bytes of this time may be sent at once.
const BURST: Duration = Duration::from_millis(50);

/// Token bucket without a clock: the caller passes the time as a duration since a fixed moment.
///
/// Over every span of time it admits at most `rate * (span + burst)` bytes plus one request in progress. A request
/// larger than the burst is admitted whole and delays the requests after it, so no size is refused.
#[derive(Debug, Clone)]
pub struct BandwidthBucket {
    bytes_per_second: u64,
    /// Idle time that accumulates as credit.
    burst: Duration,
    /// Time at which all booked bytes would be sent at the rate.
    paid: Duration,
}

impl BandwidthBucket {
    /// Creates a bucket that admits the bytes of `burst` at once. A rate of 0 counts as 1, because no wait may be
    /// endless (RG-9).
    pub fn new(bytes_per_second: u64, burst: Duration) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            burst,
            paid: Duration::ZERO,
        }
    }

    /// Books `bytes` at `now` and returns the time that the sender must wait before it sends them.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let from = self.paid.max(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        self.paid = from.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        from.saturating_sub(now).saturating_sub(self.burst)
    }

    /// Sets the rate of later requests, at least 1 byte per second; earlier bookings are unchanged.
    pub fn set(&mut self, bytes_per_second: u64) {
        self.bytes_per_second = bytes_per_second.max(1);
    }
}

/// A [`BandwidthBucket`] on the clock of the runtime, shared by all senders. Without a rate it never waits.
#[derive(Debug)]
pub struct BandwidthCap {
    /// Bucket of the current rate; `None` means unlimited.
    bucket: Mutex<Option<BandwidthBucket>>,
    /// Moment from which the times of the bucket count.
    since: Instant,
}

impl BandwidthCap {
    /// Creates a cap in bytes per second; `None` means unlimited.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            bucket: Mutex::new(bytes_per_second.map(|rate| BandwidthBucket::new(rate, BURST))),
            since: Instant::now(),
        }
    }

    /// Creates an unlimited cap.
    pub fn none() -> Self {
        Self::new(None)
    }

    fn lock(&self) -> MutexGuard<'_, Option<BandwidthBucket>> {
        self.bucket.lock().expect("no holder of the bucket panics")
    }

    /// Sets the rate of later requests; `None` means unlimited. The bandwidth that training leaves free changes during
    /// a checkpoint.
    pub fn set(&self, bytes_per_second: Option<u64>) {
        let mut bucket = self.lock();
        match (bucket.as_mut(), bytes_per_second) {
            (Some(bucket), Some(rate)) => bucket.set(rate),
            _ => *bucket = bytes_per_second.map(|rate| BandwidthBucket::new(rate, BURST)),
        }
    }

    /// Books `bytes` and waits until they may be sent. A wait that is cancelled does not undo the booking.
    pub async fn take(&self, bytes: u64) {
        let now = self.since.elapsed();
        let wait = self.lock().as_mut().map(|bucket| bucket.take(now, bytes));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = BandwidthBucket::new(1_000, SECOND);
        assert_eq!(bucket.take(Duration::ZERO, 1_000), Duration::ZERO);
        assert_eq!(
            bucket.take(Duration::ZERO, 500),
            Duration::ZERO,
            "the burst is one second"
        );
        assert_eq!(bucket.take(Duration::ZERO, 500), SECOND / 2);
        assert_eq!(
            bucket.take(2 * SECOND, 1),
            Duration::ZERO,
            "two seconds later all is paid"
        );
    }

    #[test]
    fn a_new_rate_holds_for_what_comes_next() {
        let mut bucket = BandwidthBucket::new(10, Duration::ZERO);
        assert_eq!(bucket.take(Duration::ZERO, 10), Duration::ZERO);
        bucket.set(1_000);
        assert_eq!(
            bucket.take(Duration::ZERO, 1_000),
            SECOND,
            "what was booked is still paid at the old rate"
        );
        assert_eq!(bucket.take(Duration::ZERO, 1), 2 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn senders_together_keep_to_the_cap() {
        let cap = std::sync::Arc::new(BandwidthCap::new(Some(1_000_000)));
        let started = Instant::now();
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let cap = cap.clone();
            senders.spawn(async move {
                for _ in 0..25 {
                    cap.take(100_000).await;
                }
            });
        }
        senders.join_all().await;
        let took = started.elapsed().as_secs_f64();
        assert!(
            (9.8..=10.0).contains(&took),
            "10 MB at 1 MB/s took {took} s of the clock"
        );
    }

    proptest! {
        /// For any sequence of requests, no span of time admits more than the rate, the burst and one request.
        #[test]
        fn no_span_sees_more_than_the_rate(
            rate in 1u64..1_000_000,
            burst_ms in 0u64..2_000,
            asks in proptest::collection::vec((0u64..500, 0u64..100_000), 1..60),
        ) {
            let burst = Duration::from_millis(burst_ms);
            let mut bucket = BandwidthBucket::new(rate, burst);
            let mut now = Duration::ZERO;
            let mut sent = Vec::new();
            for (pause_ms, bytes) in asks {
                now += Duration::from_millis(pause_ms);
                now += bucket.take(now, bytes);
                sent.push((now, bytes));
            }
            let largest = sent.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            for first in 0..sent.len() {
                for last in first..sent.len() {
                    let span = sent[last].0 - sent[first].0;
                    let seen: u64 = sent[first..=last].iter().map(|(_, bytes)| bytes).sum();
                    let may = (span + burst).as_secs_f64() * rate as f64 + largest as f64;
                    prop_assert!(seen as f64 <= may * 1.0001 + 1.0, "{seen} bytes in {span:?}, may {may}");
                }
            }
        }
    }
}
