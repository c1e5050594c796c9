//! Conversion of the kernel's time since boot, as stamped on log lines, to the wall clock.

use std::time::Duration;

use rankguard_model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::clock;

/// Greatest age of a record that was just read from a file to which something appends.
const FRESH: Duration = Duration::from_secs(60);

/// Returns the time of the kernel's boot. Kernel stamps do not count suspended time; cluster nodes do not suspend.
pub(super) fn boot_moment() -> Timestamp {
    clock::now().before(uptime().unwrap_or_default())
}

/// Returns the time of a record from its time since boot, if it is at most [`FRESH`] old by this machine's clock. The
/// stamps in a copy of another machine's ring do not refer to this machine's boot.
pub(super) fn just_now(since_boot_us: u64) -> Option<Timestamp> {
    let age = uptime()?.checked_sub(Duration::from_micros(since_boot_us))?;
    (age <= FRESH).then(|| clock::now().before(age))
}

/// Returns the time of a record of any age from its time since boot. `None` if this boot has not lasted that long: the
/// record is of an earlier one.
pub(super) fn of_this_boot(since_boot_us: u64) -> Option<Timestamp> {
    let age = uptime()?.checked_sub(Duration::from_micros(since_boot_us))?;
    Some(clock::now().before(age))
}

pub(super) fn uptime() -> Option<Duration> {
    let since = clock_gettime(ClockId::Boottime);
    Some(Duration::new(
        u64::try_from(since.tv_sec).ok()?,
        u32::try_from(since.tv_nsec).ok()?,
    ))
}
