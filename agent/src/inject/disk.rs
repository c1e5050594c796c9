//! Unlinked file that fills a file system. The kernel frees the space when it is closed, however the agent ends.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, open, openat, unlinkat};

/// Allocates this many bytes. Fails if fewer are free.
pub(super) fn fill(directory: &Path, bytes: u64) -> Result<File, String> {
    let at = directory.display();
    let failed = |doing: &str, problem: io::Error| format!("cannot {doing} {at}: {problem}");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(directory, flags, Mode::empty()).map_err(|problem| failed("open", problem.into()))?;
    let room = fstatvfs(&folder).map_err(|problem| failed("measure", problem.into()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if bytes > free {
        return Err(format!(
            "{at} has {free} bytes of room: fewer than the {bytes} that are to be taken"
        ));
    }
    // Unique name for the time between these two calls.
    let name = format!(".rankguard-injected-{}-{}", std::process::id(), crate::clock::now().0);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|problem| failed("make a file in", problem.into()))?;
    unlinkat(&folder, &name, rustix::fs::AtFlags::empty())
        .map_err(|problem| failed("remove a file from", problem.into()))?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(|problem| failed("take room in", problem.into()))?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_without_a_name_and_more_than_there_is_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = fill(folder.path(), 1 << 20).expect("there is a megabyte");
        let size = file.metadata().expect("it is open");
        assert_eq!(size.len(), 1 << 20);
        assert!(std::os::unix::fs::MetadataExt::blocks(&size) >= 2048, "{size:?}");
        let entries = std::fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(entries, 0);
        let refused = fill(folder.path(), u64::MAX).expect_err("no disk is so large");
        assert!(refused.contains("fewer than"), "{refused}");
        let missing = fill(&folder.path().join("no"), 1).expect_err("there is no such folder");
        assert!(missing.contains("cannot open"), "{missing}");
    }
}
