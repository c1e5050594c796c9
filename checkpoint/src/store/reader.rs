//! Reader of shard ranges, bypassing the page cache if the filesystem supports it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::direct::{SECTOR, SectorBuffer, give_up};
use super::disk::{self, FileOperation};
use super::{StoreError, files};

/// File for concurrent range reads from several threads.
#[derive(Debug)]
pub(crate) struct RangeReader {
    path: PathBuf,
    file: File,
    direct: bool,
    bytes: u64,
}

impl RangeReader {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let (file, direct, bytes) = files::open_direct(path)?;
        let path = path.to_owned();
        Ok(Self {
            path,
            file,
            direct,
            bytes,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the bytes of `range` into `buffer`.
    pub(crate) fn read<'b>(&self, range: &Range<u64>, buffer: &'b mut SectorBuffer) -> io::Result<&'b [u8]> {
        if range.end > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (from, to) = if self.direct {
            (range.start / SECTOR * SECTOR, range.end.next_multiple_of(SECTOR))
        } else {
            (range.start, range.end)
        };
        let needed = (range.end - from) as usize;
        let space = buffer.take((to - from) as usize)?;
        let mut got = 0;
        while got < needed {
            // A direct read ends short only at the end of the file, or at a whole sector after an interrupt.
            let place = from + got as u64;
            match disk::call(FileOperation::Read, &self.path, || {
                self.file.read_at(&mut space[got..], place)
            }) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.direct && Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    give_up(&self.file)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(&space[(range.start - from) as usize..needed])
    }
}
