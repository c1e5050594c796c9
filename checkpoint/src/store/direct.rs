//! Transfers past the page cache.
//!
//! A shard is written once and read rarely: in the page cache it would cost a copy, and push out what training reads. Where a
//! filesystem refuses direct transfers (tmpfs, some network filesystems) everything goes through the cache instead.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::disk;
use crate::pages::Pages;

/// Bytes of one write out of a buffer: large enough that one writer keeps a disk busy, small enough to stay in a core's cache.
pub(crate) const BLOCK: usize = 1 << 20;

/// Bytes of one write of what lies in memory anyhow. The kernel cuts it into requests that the disk has side by side: where
/// this was measured, one writer with 1 MiB at a time took a sixth longer, and twice the CPU.
pub(crate) const STRETCH: usize = 16 << 20;

/// Bytes of one read of several chunks. Chunks begin anywhere in a sector, so neighbouring reads share one: with reads as
/// short as the writes are, that costs a tenth of what the disk gives.
pub(crate) const READ: usize = 4 << 20;

/// What places and lengths of a direct transfer are multiples of; the largest sector in use.
pub(crate) const SECTOR: u64 = 4096;

/// A buffer that begins at a multiple of [`SECTOR`].
#[derive(Debug, Default)]
pub(crate) struct Aligned {
    pages: Option<Pages>,
}

impl Aligned {
    /// `length` bytes of it; grows as needed. What it held before is unspecified.
    pub(crate) fn take(&mut self, length: usize) -> io::Result<&mut [u8]> {
        let pages = match self.pages.take().filter(|pages| pages.len() >= length) {
            Some(enough) => enough,
            // Whoever reads runs of chunks soon reads a full one.
            None if length > READ / 8 => Pages::new(length.max(READ + 2 * SECTOR as usize))?,
            None => Pages::new(length.next_multiple_of(SECTOR as usize))?,
        };
        Ok(&mut self.pages.insert(pages)[..length])
    }
}

/// Opens for direct transfers where the filesystem lets us, and otherwise as usual. Says which.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<(File, bool)> {
    let flag = i32::try_from(OFlags::DIRECT.bits()).expect("flags of open are an int");
    match options.custom_flags(flag).open(path) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            Ok((options.custom_flags(0).open(path)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// From now on through the page cache: some filesystems accept the flag and refuse the transfer.
pub(crate) fn give_up(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

/// Calls `write(at, length)` until `range` is written, for all that is left of it at once; lengths are whole sectors while
/// transfers are direct.
pub(crate) fn write_all(
    path: &Path,
    file: &File,
    direct: &mut bool,
    range: Range<u64>,
    write: impl Fn(u64, usize) -> io::Result<usize>,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let left = range.end - at;
        let length = if *direct { left.next_multiple_of(SECTOR) } else { left };
        let unit = if *direct { SECTOR as usize } else { 1 };
        match disk::write(path, length as usize, unit, |length| write(at, length)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            // A short direct write may end anywhere; the next one begins at a whole sector again.
            Ok(took) if *direct && (took as u64) < length => match took as u64 / SECTOR * SECTOR {
                0 => {
                    give_up(file)?;
                    *direct = false;
                }
                sectors => at += sectors,
            },
            Ok(took) => at += took as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if *direct && Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                give_up(file)?;
                *direct = false;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
