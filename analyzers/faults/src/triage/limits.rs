//! Limits of a triage: waiting times and counts.

use std::time::Duration;

/// Time without additions after which a group is complete.
pub const IDLE: Duration = Duration::from_millis(200);
/// Maximum time that a growing group is held.
pub const HOLD: Duration = Duration::from_secs(2);
/// Deduplication window on the lines' own clock.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of open lanes.
pub const LANES: usize = 4096;
/// Maximum number of waiting groups.
pub const PENDING: usize = 1024;
/// Number of lines of other writers after which an open unit is complete: its writer is gone.
pub const QUIET_LINES: u64 = 20_000;
/// Maximum number of context lines around the deciding one.
pub const CONTEXT: usize = 12;
