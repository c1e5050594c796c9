//! The kernel's clock: time since boot, as its log stamps lines, on the wall clock.

use std::time::Duration;

use rankguard_model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::clock;

/// How old a record may be that was just read from a file which something appends to.
const FRESH: Duration = Duration::from_secs(60);

/// When this kernel booted. Kernel stamps do not count time asleep; cluster nodes do not sleep.
pub(super) fn boot_moment() -> Timestamp {
    clock::now().before(uptime().unwrap_or_default())
}

/// The moment of a record by its time since boot, if that is a moment ago on this machine. A copy of another machine's
/// ring has times that mean nothing here.
pub(super) fn just_now(since_boot_us: u64) -> Option<Timestamp> {
    let age = uptime()?.checked_sub(Duration::from_micros(since_boot_us))?;
    (age <= FRESH).then(|| clock::now().before(age))
}

fn uptime() -> Option<Duration> {
    let since = clock_gettime(ClockId::Boottime);
    Some(Duration::new(
        u64::try_from(since.tv_sec).ok()?,
        u32::try_from(since.tv_nsec).ok()?,
    ))
}
