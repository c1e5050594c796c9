//! Wall clock of the agent: the only place in this crate that reads it, and the estimate of its offset from the
//! controller's clock.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rankguard_model::{ClockOffset, Timestamp};

/// Returns the node's wall-clock time.
pub(crate) fn now() -> Timestamp {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    #[cfg(test)]
    let nanos = nanos + SET.get();
    Timestamp(nanos)
}

#[cfg(test)]
thread_local! {
    /// Nanoseconds by which the wall clock was set, as this test's thread sees it.
    static SET: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// Sets the wall clock, for the thread of a test.
#[cfg(test)]
pub(crate) fn set(by: i64) {
    SET.set(by);
}

/// Returns the time of a monotonic clock, for durations. Its values start at the wall-clock time, do not follow later
/// changes of it, and are compared only with each other.
pub(crate) fn steady() -> Timestamp {
    static START: OnceLock<(Instant, Timestamp)> = OnceLock::new();
    let (start, at) = START.get_or_init(|| (Instant::now(), now()));
    at.after(start.elapsed())
}

/// Synchronisation state of the kernel's clock (`adjtimex`, which only reads here and requires no privileges).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelClock {
    /// True if a time service disciplines the clock.
    pub(crate) synchronised: bool,
    /// Maximum error in microseconds; grows while no service corrects the clock.
    pub(crate) max_error_us: i64,
    /// Last offset that the time service measured, in microseconds.
    pub(crate) offset_us: i64,
}

/// Reads the state of the kernel's clock; `None` if `adjtimex` fails.
pub(crate) fn kernel_clock() -> Option<KernelClock> {
    // SAFETY: the structure holds only integers, for which zero is valid; `modes` 0 requests a read.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole structure that lives until the call returns and is not shared.
    if unsafe { libc::adjtimex(&raw mut state) } == -1 {
        return None;
    }
    let offset = state.offset;
    Some(KernelClock {
        synchronised: state.status & libc::STA_UNSYNC == 0,
        max_error_us: state.maxerror,
        offset_us: if state.status & libc::STA_NANO == 0 {
            offset
        } else {
            offset / 1000
        },
    })
}

/// Number of retained echoes. At three heartbeats a second the best of the last 20 seconds counts: long enough to
/// include a quiet moment of the network, short enough to follow a clock that is being slewed.
const WINDOW: usize = 64;

/// Clock filter that selects the offset of the echo with the shortest round trip: queueing only adds delay, so the
/// fastest exchange is the least distorted one.
#[derive(Debug, Default)]
pub(crate) struct OffsetFilter {
    echoes: VecDeque<ClockOffset>,
}

impl OffsetFilter {
    /// Adds one exchange (the node's clock at sending and at receiving, the controller's clock in between) and returns
    /// the best estimate.
    pub(crate) fn observe(&mut self, sent: Timestamp, controller: Timestamp, received: Timestamp) -> ClockOffset {
        if received < sent {
            // The node's clock was set back in between, so this exchange and all older ones are invalid.
            self.echoes.clear();
            return self.estimate().unwrap_or_default();
        }
        let half = (received.0 - sent.0) / 2;
        let middle = sent.0.saturating_add(half);
        if self.echoes.len() == WINDOW {
            self.echoes.pop_front();
        }
        self.echoes.push_back(ClockOffset {
            offset_ns: middle.saturating_sub(controller.0),
            error_ns: half.unsigned_abs(),
        });
        self.estimate().unwrap_or_default()
    }

    /// Returns the best estimate; `None` before the first echo.
    pub(crate) fn estimate(&self) -> Option<ClockOffset> {
        self.echoes.iter().min_by_key(|echo| echo.error_ns).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_round_trip_decides() {
        let mut filter = OffsetFilter::default();
        // The node runs 1,000 ns ahead; the slow exchange was delayed on its way back only.
        filter.observe(Timestamp(10_000), Timestamp(9_100), Timestamp(90_000));
        let estimate = filter.observe(Timestamp(100_000), Timestamp(99_100), Timestamp(100_200));
        assert_eq!(
            estimate,
            ClockOffset {
                offset_ns: 1_000,
                error_ns: 100
            }
        );
        let unchanged = filter.observe(Timestamp(200_000), Timestamp(199_100), Timestamp(250_000));
        assert_eq!(unchanged, estimate);
    }

    #[test]
    fn a_clock_set_back_between_sending_and_receiving_is_no_measurement() {
        let mut filter = OffsetFilter::default();
        filter.observe(Timestamp(100), Timestamp(50), Timestamp(90));
        assert_eq!(filter.estimate(), None);
    }
}
