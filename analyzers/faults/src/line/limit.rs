//! How much of a line is looked at.

/// Longest part of a line that is looked at, bytes. Longer lines are progress bars, dumps of data or attacks; what names a
/// failure stands at their start.
pub const LINE_LIMIT: usize = 16 * 1024;
