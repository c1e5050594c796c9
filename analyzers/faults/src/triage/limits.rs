//! What bounds a triage: how long things wait, and how many.

use std::time::Duration;

/// A group that nothing was added to for this long is complete.
pub const IDLE: Duration = Duration::from_millis(200);
/// A group is not held longer than this, even while it grows.
pub const HOLD: Duration = Duration::from_secs(2);
/// Repeats further apart than this on the lines' own clock are two observations.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Ranks with an open unit at a time.
pub const LANES: usize = 4096;
/// Groups that wait at a time.
pub const PENDING: usize = 1024;
/// A unit is complete when this many lines of others have passed it by: its writer is gone.
pub const QUIET_LINES: u64 = 20_000;
/// Lines kept around the deciding one.
pub const CONTEXT: usize = 12;
