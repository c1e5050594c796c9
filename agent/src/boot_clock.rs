//! Clock for leases (`CLOCK_BOOTTIME`). Agent and supervisors run on one kernel, so they read the same clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since the machine was booted, suspensions included. Setting the wall clock does not change it.
pub(crate) fn boot_now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
