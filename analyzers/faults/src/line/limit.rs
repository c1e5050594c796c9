//! Length limit of a log line.

/// Maximum part of a line that is examined, bytes. Longer lines are progress bars, data dumps or attacks; the text
/// that identifies a failure is at their start.
pub const LINE_LIMIT: usize = 16 * 1024;
