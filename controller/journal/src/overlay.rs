//! Copy-on-write overlay of a journal file: the writes of a repair go to memory, and the file remains unchanged.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use redb::StorageBackend;

/// Block size, bytes.
const BLOCK: usize = 4_096;

/// File with the blocks written over it.
#[derive(Debug)]
pub(crate) struct OverlayFile {
    file: File,
    over: Mutex<OverlayBlocks>,
}

#[derive(Debug)]
struct OverlayBlocks {
    /// Length as set by the database.
    length: u64,
    /// Bytes of the file that are still valid: fewer than its length after a truncation.
    below: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl OverlayFile {
    /// Opens a file. Returns `None` if a controller has it open.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(problem)) => return Err(problem),
        }
        let length = file.metadata()?.len();
        let over = OverlayBlocks {
            length,
            below: length,
            blocks: BTreeMap::new(),
        };
        Ok(Some(Self {
            file,
            over: Mutex::new(over),
        }))
    }

    /// Every block is written in one copy, so a panic under the lock leaves complete blocks.
    fn over(&self) -> MutexGuard<'_, OverlayBlocks> {
        self.over.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn of_file(&self, below: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(below.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (read, rest) = out.split_at_mut(there.min(out.len()));
        rest.fill(0);
        self.file.read_exact_at(read, offset)
    }
}

/// Returns the blocks that a range touches, each with its part of the range and the position in the caller's bytes.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let from = (at % BLOCK as u64) as usize;
        let count = (BLOCK - from).min(length - done);
        let part = (at / BLOCK as u64, from..from + count, done);
        done += count;
        (count > 0).then_some(part)
    })
}

impl StorageBackend for OverlayFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.over().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let over = self.over();
        if offset.saturating_add(out.len() as u64) > over.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if over.blocks.is_empty() {
            return self.of_file(over.below, offset, out);
        }
        for (block, part, at) in parts(offset, out.len()) {
            let out = &mut out[at..at + part.len()];
            match over.blocks.get(&block) {
                Some(bytes) => out.copy_from_slice(&bytes[part]),
                None => self.of_file(over.below, block * BLOCK as u64 + part.start as u64, out)?,
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut over = self.over();
        over.below = over.below.min(length);
        over.length = length;
        // Bytes past the end must read as zeros if the file grows again.
        over.blocks.split_off(&length.div_ceil(BLOCK as u64));
        if let Some(last) = over.blocks.get_mut(&(length / BLOCK as u64)) {
            last[(length % BLOCK as u64) as usize..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut over = self.over();
        let below = over.below;
        for (block, part, at) in parts(offset, data.len()) {
            let bytes = match over.blocks.entry(block) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(absent) => {
                    let mut bytes = Box::new([0; BLOCK]);
                    self.of_file(below, block * BLOCK as u64, bytes.as_mut_slice())?;
                    absent.insert(bytes)
                }
            };
            let count = part.len();
            bytes[part].copy_from_slice(&data[at..at + count]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_the_file_stays_as_it_is() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
        std::fs::write(&path, &bytes).expect("room");
        let over = OverlayFile::open(&path).expect("readable").expect("nobody has it open");
        let mut wanted = bytes.clone();
        for (offset, length) in [(4_090, 20), (0, 3), (8_192, 1_808), (4_096, 4_096)] {
            over.write(offset as u64, &vec![7; length]).expect("memory");
            wanted[offset..offset + length].fill(7);
        }
        let all = |over: &OverlayFile, length: usize| {
            let mut out = vec![0; length];
            over.read(0, &mut out).map(|()| out)
        };
        assert_eq!(all(&over, 10_000).expect("within"), wanted);
        assert!(over.read(9_999, &mut [0; 2]).is_err(), "past the end");
        over.set_len(5_000).expect("memory");
        over.set_len(12_000).expect("memory");
        wanted.truncate(5_000);
        wanted.resize(12_000, 0);
        assert_eq!(all(&over, 12_000).expect("within"), wanted);
        assert_eq!(std::fs::read(&path).expect("readable"), bytes);
    }
}
