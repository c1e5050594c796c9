//! Order of lines of logs, as far as their stamps and their places show it.
//!
//! A line without a stamp was written before the stamped line below it. Its order to a line of another log is known only
//! if that bound decides it.

use std::cmp::Ordering;
use std::time::Duration;

use rankguard_model::Timestamp;

use crate::Signal;
use crate::signal::SINCE_BOOT_FIELD;

/// Minimum time from the bound of a line without a stamp to a failure, for the line to be older. Programs write to one
/// log through several buffers, so lines of one moment change places.
const OLDER: Duration = Duration::from_secs(60);

/// Returns the time before which a line without a stamp was written, if it is clearly older than the first cause.
pub(crate) fn older_until(sign: &Signal, first: &Signal) -> Option<Timestamp> {
    let until = sign.written_until().filter(|_| first.timed)?;
    (first.at.since(until) >= OLDER).then_some(until)
}

/// Returns the time from the first cause to a sign, milliseconds, by the clock of the boot that both lines of one log carry. None if
/// the order of the lines is another one: the machine was started again in between.
pub(crate) fn millis_of_boot(sign: &Signal, first: &Signal) -> Option<i64> {
    let since_boot = |sign: &Signal| sign.field(SINCE_BOOT_FIELD)?.parse::<i64>().ok();
    let is_one_log = sign.evidence.node == first.evidence.node && !sign.timed && !first.timed;
    let micros = since_boot(sign)?
        .checked_sub(since_boot(first)?)
        .filter(|_| is_one_log)?;
    let is_in_order = match sign.evidence.seq.cmp(&first.evidence.seq) {
        Ordering::Less => micros <= 0,
        Ordering::Equal => micros == 0,
        Ordering::Greater => micros >= 0,
    };
    is_in_order.then_some(micros / 1_000)
}

/// Returns true if nothing shows whether a sign came after the first cause.
pub(crate) fn has_unknown_order(sign: &Signal, first: &Signal) -> bool {
    let is_timed = sign.timed && first.timed;
    let is_below = sign.evidence.node == first.evidence.node && sign.evidence.seq >= first.evidence.seq;
    !is_timed && !is_below && millis_of_boot(sign, first).is_none()
}
