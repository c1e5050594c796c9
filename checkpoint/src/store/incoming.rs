//! Files of a checkpoint folder that are filled from another tier, in any order of their bytes.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::store::StoreError;
use crate::store::disk;
use crate::store::files::{self, Put, Temp};

/// What publishing a file did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The file has its name now.
    New,
    /// Another file had that name, and was left as it is. The caller compares it.
    AlreadyThere,
}

/// A file under a temporary name; gone when dropped before it is published. Several processes and nodes may fill the same file
/// at once, each under a name of its own.
pub struct IncomingFile {
    temp: Temp,
    target: PathBuf,
}

impl IncomingFile {
    /// Starts a file of `bytes` bytes in a folder that exists. Space for all of them is allocated now, where the filesystem can.
    pub fn start(target: &Path, bytes: u64) -> Result<Self, StoreError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let temp = Temp::start(files::parent(target), &name, bytes)?;
        let target = target.to_owned();
        Ok(Self { temp, target })
    }

    /// Writes `bytes` at `at`. May be called from several threads for ranges that do not overlap.
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

    /// Syncs the file and gives it its name, unless that is taken.
    pub fn publish(self) -> Result<Published, StoreError> {
        Ok(match self.temp.put()? {
            Put::Written => Published::New,
            Put::AlreadyThere => Published::AlreadyThere,
        })
    }
}

/// Makes the folder of a file and those above it, and makes their names last.
pub fn ensure_folder_of(path: &Path) -> Result<(), StoreError> {
    files::ensure_dir_all(files::parent(path))
}
