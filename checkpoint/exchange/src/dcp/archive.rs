//! Reader of the zip archives that `torch.save` writes: no compression, no comment, one top folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crc32fast::Hasher;

/// Maximum size of a central directory in bytes.
const MAX_DIRECTORY: u64 = 4 << 20;

/// Bytes read at a time while a checksum is computed.
const BLOCK: usize = 1 << 20;

/// Error of reading an archive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    #[error("no archive of torch.save: {0}")]
    Shape(&'static str),
    #[error("record {name} has CRC-32 {found:08x}, the archive says {stated:08x}")]
    Damaged { name: String, stated: u32, found: u32 },
}

/// Position of a record's bytes in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordRange {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    crc: u32,
}

/// Archive within a file.
pub(crate) struct ArchiveReader<'f> {
    file: &'f File,
    start: u64,
    end: u64,
    /// Offset of the local header, size and CRC-32 of each record, by name without the top folder.
    records: BTreeMap<String, (u64, u64, u32)>,
}

fn word(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(width)?)?;
    Some(part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

impl<'f> ArchiveReader<'f> {
    /// Reads the central directory of the archive at `start..start + length`.
    pub(crate) fn open(file: &'f File, start: u64, length: u64) -> Result<Self, ArchiveError> {
        let end = start.checked_add(length).ok_or(ArchiveError::Shape("its length"))?;
        let (at, bytes) = directory_of(file, start, end)?;
        let mut directory = vec![0; bytes as usize];
        file.read_exact_at(&mut directory, at)?;
        let mut archive = Self {
            file,
            start,
            end,
            records: BTreeMap::new(),
        };
        archive
            .list(&directory)
            .ok_or(ArchiveError::Shape("its list of records"))??;
        Ok(archive)
    }

    fn list(&mut self, directory: &[u8]) -> Option<Result<(), ArchiveError>> {
        let mut at = 0;
        while at < directory.len() {
            if word(directory, at, 4)? != 0x0201_4b50 {
                return None;
            }
            let method = word(directory, at + 10, 2)?;
            let crc = word(directory, at + 16, 4)? as u32;
            let mut sizes = [
                word(directory, at + 24, 4)?,
                word(directory, at + 20, 4)?,
                word(directory, at + 42, 4)?,
            ];
            let lengths = [28, 30, 32].map(|field| word(directory, at + field, 2).unwrap_or(0) as usize);
            let name = directory.get(at + 46..at + 46 + lengths[0])?;
            let extra = directory.get(at + 46 + lengths[0]..at + 46 + lengths[0] + lengths[1])?;
            wide(extra, &mut sizes)?;
            if method != 0 || sizes[0] != sizes[1] {
                return Some(Err(ArchiveError::Shape("a record is compressed")));
            }
            let name = std::str::from_utf8(name).ok()?;
            if let Some((_, name)) = name.split_once('/') {
                self.records.insert(name.to_owned(), (sizes[2], sizes[0], crc));
            }
            at += 46 + lengths.iter().sum::<usize>();
        }
        Some(Ok(()))
    }

    /// Locates the bytes of a record; returns `None` if there is no such record.
    pub(crate) fn record(&self, name: &str) -> Result<Option<RecordRange>, ArchiveError> {
        let Some(&(header, bytes, crc)) = self.records.get(name) else {
            return Ok(None);
        };
        let outside = ArchiveError::Shape("a record lies outside of it");
        let Some(at) = self
            .start
            .checked_add(header)
            .filter(|at| at.saturating_add(30) <= self.end)
        else {
            return Err(outside);
        };
        let mut local = [0; 30];
        self.file.read_exact_at(&mut local, at)?;
        let lengths = [26, 28].map(|field| word(&local, field, 2).unwrap_or(0));
        let offset = at + 30 + lengths.iter().sum::<u64>();
        if word(&local, 0, 4) != Some(0x0403_4b50) || offset.checked_add(bytes).is_none_or(|end| end > self.end) {
            return Err(outside);
        }
        Ok(Some(RecordRange { offset, bytes, crc }))
    }

    /// Reads a whole record of at most `most` bytes and compares its checksum.
    pub(crate) fn read(&self, name: &str, most: u64) -> Result<Option<(Vec<u8>, RecordRange)>, ArchiveError> {
        let Some(record) = self.record(name)? else {
            return Ok(None);
        };
        if record.bytes > most {
            return Err(ArchiveError::Shape("a record that should be small is large"));
        }
        let mut bytes = vec![0; record.bytes as usize];
        self.file.read_exact_at(&mut bytes, record.offset)?;
        if self.has_checksums() {
            let found = crc32fast::hash(&bytes);
            record.compare(name, found)?;
        }
        Ok(Some((bytes, record)))
    }

    /// Returns true if the writer stored checksums; with `set_crc32_options(False)` all of them are zero.
    pub(crate) fn has_checksums(&self) -> bool {
        self.records.values().any(|(_, _, crc)| *crc != 0)
    }

    /// Reads a record and compares its checksum; reports the number of bytes read to `each`.
    pub(crate) fn check(
        &self,
        name: &str,
        record: &RecordRange,
        each: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let mut hasher = Hasher::new();
        let mut block = vec![0; BLOCK.min(usize::try_from(record.bytes).unwrap_or(BLOCK))];
        let mut at = 0;
        while at < record.bytes {
            let count = usize::try_from(record.bytes - at).unwrap_or(BLOCK).min(block.len());
            self.file.read_exact_at(&mut block[..count], record.offset + at)?;
            hasher.update(&block[..count]);
            at += count as u64;
            each(count as u64);
        }
        record.compare(name, hasher.finalize())
    }
}

impl RecordRange {
    fn compare(&self, name: &str, found: u32) -> Result<(), ArchiveError> {
        if found == self.crc {
            return Ok(());
        }
        Err(ArchiveError::Damaged {
            name: name.chars().take(64).collect(),
            stated: self.crc,
            found,
        })
    }
}

/// Locates the central directory through the end record; returns its offset and size.
fn directory_of(file: &File, start: u64, end: u64) -> Result<(u64, u64), ArchiveError> {
    let no_end = || ArchiveError::Shape("no end record where it should end: cut short, or not written by torch.save");
    let last = end.checked_sub(22).filter(|at| *at >= start).ok_or_else(no_end)?;
    let mut bytes = [0; 22];
    file.read_exact_at(&mut bytes, last)?;
    if word(&bytes, 0, 4) != Some(0x0605_4b50) || word(&bytes, 20, 2) != Some(0) {
        return Err(no_end());
    }
    let mut size = word(&bytes, 12, 4).unwrap_or(0);
    let mut at = word(&bytes, 16, 4).unwrap_or(0);
    if size == 0xffff_ffff || at == 0xffff_ffff || word(&bytes, 10, 2) == Some(0xffff) {
        let locator_at = last.checked_sub(20).filter(|at| *at >= start).ok_or_else(no_end)?;
        let mut locator = [0; 20];
        file.read_exact_at(&mut locator, locator_at)?;
        let wide_at = word(&locator, 8, 8).and_then(|at| start.checked_add(at));
        let wide_at = wide_at.filter(|at| at.saturating_add(56) <= end).ok_or_else(no_end)?;
        let mut wide = [0; 56];
        file.read_exact_at(&mut wide, wide_at)?;
        if word(&locator, 0, 4) != Some(0x0706_4b50) || word(&wide, 0, 4) != Some(0x0606_4b50) {
            return Err(no_end());
        }
        (size, at) = (word(&wide, 40, 8).unwrap_or(0), word(&wide, 48, 8).unwrap_or(0));
    }
    let at = start.checked_add(at).ok_or_else(no_end)?;
    if size > MAX_DIRECTORY || at.checked_add(size).is_none_or(|past| past > last) {
        return Err(ArchiveError::Shape(
            "its list of records lies outside of it or is too long",
        ));
    }
    Ok((at, size))
}

/// Replaces 32-bit sizes that overflowed: full size, stored size, offset of the header, in this order.
fn wide(extra: &[u8], sizes: &mut [u64; 3]) -> Option<()> {
    if sizes.iter().all(|size| *size != 0xffff_ffff) {
        return Some(());
    }
    let mut at = 0;
    while at < extra.len() {
        let id = word(extra, at, 2)?;
        let length = word(extra, at + 2, 2)? as usize;
        if id == 1 {
            let field = extra.get(at + 4..at + 4 + length)?;
            let mut from = 0;
            for size in sizes.iter_mut().filter(|size| **size == 0xffff_ffff) {
                *size = word(field, from, 8)?;
                from += 8;
            }
            return Some(());
        }
        at += 4 + length;
    }
    None
}
