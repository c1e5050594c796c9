//! Direct transfers, which bypass the page cache.
//!
//! A shard is written once and read rarely: the page cache would cost a copy, and evict data that training reads. If a
//! filesystem refuses direct transfers (tmpfs, some network filesystems), the page cache is used.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::disk;
use crate::pages::AlignedPages;

/// Size of one write from a buffer, bytes: large enough that one writer keeps a disk busy, small enough for the cache
/// of a core.
pub(crate) const BLOCK: usize = 1 << 20;

/// Size of one write from mapped memory, bytes. The kernel splits it into parallel requests. In a measurement, one
/// writer with 1 MiB at a time took a sixth longer, and twice the CPU.
pub(crate) const STRETCH: usize = 16 << 20;

/// Size of one read of several chunks, bytes. Chunks are not sector-aligned, so neighbouring reads share a sector: with
/// reads as short as the writes, that costs a tenth of the disk throughput.
pub(crate) const READ: usize = 4 << 20;

/// Alignment of offsets and lengths of direct transfers, bytes; the largest sector size in use.
pub(crate) const SECTOR: u64 = 4096;

/// Buffer aligned to [`SECTOR`].
#[derive(Debug, Default)]
pub(crate) struct SectorBuffer {
    pages: Option<AlignedPages>,
}

impl SectorBuffer {
    /// Returns `length` bytes of the buffer, which grows as needed. The previous content is unspecified.
    pub(crate) fn take(&mut self, length: usize) -> io::Result<&mut [u8]> {
        let pages = match self.pages.take().filter(|pages| pages.len() >= length) {
            Some(enough) => enough,
            // A caller that reads runs of chunks will soon read a full one.
            None if length > READ / 8 => AlignedPages::new(length.max(READ + 2 * SECTOR as usize))?,
            None => AlignedPages::new(length.next_multiple_of(SECTOR as usize))?,
        };
        Ok(&mut self.pages.insert(pages)[..length])
    }
}

/// Opens a file for direct transfers if the filesystem supports them, otherwise for cached ones. Returns true for
/// direct.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<(File, bool)> {
    let flag = i32::try_from(OFlags::DIRECT.bits()).expect("flags of open are an int");
    match options.custom_flags(flag).open(path) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            Ok((options.custom_flags(0).open(path)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// Switches the file to cached transfers: some filesystems accept the flag but refuse the transfer.
pub(crate) fn give_up(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

/// Calls `write(at, length)` with the remaining range until all of `range` is written; lengths are whole sectors while
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
            // A short direct write may end anywhere; the next one starts at a whole sector.
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
