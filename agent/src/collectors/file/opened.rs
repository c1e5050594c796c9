//! Open file that is read on after its path was renamed or removed.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use super::FilePosition;
use crate::collectors::inotify::FileWatch;

/// Longest time for which an unwatched file is assumed to be the one at its path without a new check.
pub(super) const IDENTITY: Duration = Duration::from_secs(1);

/// The same for a file watched by inotify, which reports that the file itself was renamed or removed, but not that a
/// parent folder was.
const IDENTITY_WATCHED: Duration = Duration::from_secs(5);

/// Open file with its identity and read offset.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) offset: u64,
    pub(super) stir: Option<FileWatch>,
}

impl OpenFile {
    /// Returns how long an identity check of this file remains valid.
    pub(super) fn trusted(&self) -> Duration {
        match &self.stir {
            Some(stir) if !stir.is_moved() => IDENTITY_WATCHED,
            _ => IDENTITY,
        }
    }

    /// True if nothing was written since the last read.
    pub(super) fn is_read(&self) -> bool {
        match &self.stir {
            Some(stir) => !stir.has_new_writes(),
            None => self.file.metadata().is_ok_and(|found| found.len() == self.offset),
        }
    }

    pub(super) fn place(&self, offset: u64) -> FilePosition {
        FilePosition {
            device: self.device,
            inode: self.inode,
            offset,
        }
    }
}

/// Opens a file for reading. Without `O_NONBLOCK`, opening a named pipe would wait for a writer.
pub(super) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Returns the file of this identity under another name in the same folder, if it still holds `offset` bytes.
pub(super) fn renamed(path: &Path, device: u64, inode: u64, offset: u64) -> Option<(File, Metadata)> {
    let siblings = std::fs::read_dir(path.parent()?).ok()?;
    let same = |found: &Metadata| (found.dev(), found.ino()) == (device, inode) && found.is_file();
    let sibling = siblings
        .flatten()
        .find(|entry| entry.metadata().is_ok_and(|found| same(&found)))?;
    open(&sibling.path())
        .ok()
        .filter(|(_, found)| same(found) && found.len() >= offset)
}
