//! Files of a checkpoint folder that are filled from another tier, with writes in any order.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::store::StoreError;
use crate::store::disk;
use crate::store::files::{self, RenameResult, TempFile};

/// Result of publishing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishResult {
    /// The file was renamed to its final name.
    New,
    /// Another file already had that name and was left unchanged; the caller compares the contents.
    AlreadyThere,
}

/// File under a temporary name; removed if dropped before it is published. Several processes and nodes may fill the
/// same file at once, each under its own temporary name.
pub struct IncomingFile {
    temp: TempFile,
    target: PathBuf,
}

impl IncomingFile {
    /// Creates a file of `bytes` bytes in an existing folder. Allocates all space now if the filesystem supports it.
    pub fn start(target: &Path, bytes: u64) -> Result<Self, StoreError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let temp = TempFile::start(files::parent(target), &name, bytes)?;
        let target = target.to_owned();
        Ok(Self { temp, target })
    }

    /// Writes `bytes` at offset `at`. May be called from several threads for ranges that do not overlap.
    pub fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        let mut done = 0;
        while done < bytes.len() {
            let left = &bytes[done..];
            let place = at + done as u64;
            let wrote = disk::write(&self.target, left.len(), 1, |length| {
                FileExt::write_at(self.temp.file(), &left[..length], place)
            });
            match wrote {
                Ok(0) => return Err(self.temp.failed("write", std::io::ErrorKind::WriteZero.into())),
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.temp.failed("write", error)),
            }
        }
        Ok(())
    }

    /// Syncs the file and renames it to its final name, unless that exists.
    pub fn publish(self) -> Result<PublishResult, StoreError> {
        Ok(match self.temp.put()? {
            RenameResult::Written => PublishResult::New,
            RenameResult::AlreadyThere => PublishResult::AlreadyThere,
        })
    }
}

/// Creates the folder of a file and its parents, and syncs their names.
pub fn ensure_folder_of(path: &Path) -> Result<(), StoreError> {
    files::ensure_dir_all(files::parent(path))
}
