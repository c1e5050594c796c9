//! Disk reserve: a preallocated file that is released when the disk is full, so that the journal can still be opened
//! and closed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Name of the reserve file in the state directory.
pub(crate) const RESERVE_FILE: &str = "journal.reserve";
/// Size of the reserve, and of the additional free space required before the journal is written again, bytes.
pub(crate) const RESERVE_BYTES: u64 = 16 << 20;

/// Reserve of a state directory.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    path: PathBuf,
}

impl DiskReserve {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            path: dir.join(RESERVE_FILE),
        }
    }

    /// Allocates the reserve if it does not exist. An error leaves nothing reserved.
    pub(crate) fn hold(&self) -> io::Result<()> {
        if fs::metadata(&self.path).is_ok_and(|file| file.len() == RESERVE_BYTES) {
            return Ok(());
        }
        self.allocate(RESERVE_BYTES).inspect_err(|_| self.release())
    }

    /// Allocates the reserve only if the same amount again is free: space that was just released must not count as
    /// free.
    pub(crate) fn hold_with_margin(&self) -> io::Result<()> {
        let held = self.allocate(2 * RESERVE_BYTES).and_then(|()| {
            let file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(RESERVE_BYTES)
        });
        held.inspect_err(|_| self.release())
    }

    /// Releases the reserve.
    pub(crate) fn release(&self) {
        match fs::remove_file(&self.path) {
            Err(problem) if problem.kind() != io::ErrorKind::NotFound => {
                tracing::error!(path = %self.path.display(), %problem, "cannot remove the reserve file");
            }
            _ => {}
        }
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(&mut file, bytes),
            Err(problem) => Err(problem.into()),
        }
    }
}

/// Allocates space on a file system without `fallocate`.
fn fill(file: &mut File, bytes: u64) -> io::Result<()> {
    let block = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_takes_real_space_and_gives_it_back() {
        use std::os::unix::fs::MetadataExt;

        let dir = tempfile::tempdir().expect("a directory");
        let reserve = DiskReserve::new(dir.path());
        reserve.hold().expect("room");
        let file = fs::metadata(dir.path().join(RESERVE_FILE)).expect("there");
        assert_eq!((file.len(), file.mode() & 0o777), (RESERVE_BYTES, 0o600));
        assert!(file.blocks() * 512 >= RESERVE_BYTES, "{} blocks", file.blocks());
        reserve.release();
        reserve.hold_with_margin().expect("room");
        assert_eq!(
            fs::metadata(dir.path().join(RESERVE_FILE)).expect("there").len(),
            RESERVE_BYTES
        );
        reserve.release();
        reserve.release();
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);
    }
}
