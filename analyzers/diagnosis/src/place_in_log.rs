//! Order of lines of logs, as far as their stamps and their places show it.
//!
//! A line without a stamp was written before the stamped line below it. Its order to a line of another log is known only
//! if that bound decides it.

use std::time::Duration;

use rankguard_model::Timestamp;

use crate::Signal;

/// Minimum time from the bound of a line without a stamp to a failure, for the line to be older. Programs write to one
/// log through several buffers, so lines of one moment change places.
const OLDER: Duration = Duration::from_secs(60);

/// Returns the time before which a line without a stamp was written, if it is clearly older than the first cause.
pub(crate) fn older_until(sign: &Signal, first: &Signal) -> Option<Timestamp> {
    let until = sign.written_until().filter(|_| first.timed)?;
    (first.at.since(until) >= OLDER).then_some(until)
}

/// Returns true if nothing shows whether a sign came after the first cause.
pub(crate) fn has_unknown_order(sign: &Signal, first: &Signal) -> bool {
    let is_timed = sign.timed && first.timed;
    let is_below = sign.evidence.node == first.evidence.node && sign.evidence.seq >= first.evidence.seq;
    !is_timed && !is_below
}
