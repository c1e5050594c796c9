//! Time of the last write of a file.

use std::path::Path;
use std::time::UNIX_EPOCH;

/// Returns the modification time in nanoseconds since 1970, by the wall clock of the machine that wrote the file; `None` if the
/// file system does not give one or it is out of range.
pub fn modified_ns(path: &Path) -> Option<i64> {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}
