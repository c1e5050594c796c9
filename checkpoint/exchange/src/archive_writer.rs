//! Writer of the zip archives that `torch.load` reads: records stored without compression, aligned to 64 bytes.
//!
//! Sizes and offsets are always written in the 64-bit extra fields, so archives above 4 GiB use the same code path as
//! small ones.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crc32fast::Hasher;

/// Alignment in bytes of the data of a record.
const ALIGNMENT: u64 = 64;

/// Top folder of all records in the archive.
const FOLDER: &str = "archive";

/// Size in bytes of a local header without name and extra fields.
const LOCAL_HEADER: u64 = 30;

/// Size in bytes of the 64-bit extra field of a local header, plus the header of the padding field.
const LOCAL_EXTRA: u64 = 20 + 4;

/// Record that is complete or is being written.
struct RecordEntry {
    name: String,
    /// Offset of the local header from the start of the archive.
    header: u64,
    bytes: u64,
    crc: u32,
}

/// Writer that appends one archive to a file.
pub(crate) struct ArchiveWriter<'f> {
    file: &'f File,
    /// Offset of the archive in the file.
    start: u64,
    /// Offset of the next byte from the start of the archive.
    at: u64,
    records: Vec<RecordEntry>,
    /// Offset and running checksum of the open record.
    open: Option<(u64, Hasher)>,
}

impl<'f> ArchiveWriter<'f> {
    pub(crate) fn new(file: &'f File, start: u64) -> Self {
        Self {
            file,
            start,
            at: 0,
            records: Vec::new(),
            open: None,
        }
    }

    /// Begins a record of exactly `bytes` bytes.
    pub(crate) fn begin(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        self.close_record()?;
        self.records.push(RecordEntry {
            name: format!("{FOLDER}/{name}"),
            header: self.at,
            bytes,
            crc: 0,
        });
        // The header is rewritten with the checksum when the record is complete.
        let header = self.local_header(self.records.len() - 1);
        self.append(&header)?;
        self.open = Some((self.at, Hasher::new()));
        Ok(())
    }

    /// Appends bytes to the open record.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some((_, hasher)) = &mut self.open {
            hasher.update(bytes);
        }
        self.append(bytes)
    }

    /// Writes a complete record.
    pub(crate) fn record(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.begin(name, bytes.len() as u64)?;
        self.write(bytes)
    }

    /// Writes the central directory and the end records; returns the size of the archive in bytes.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.close_record()?;
        let table_at = self.at;
        let table: Vec<u8> = self.records.iter().flat_map(RecordEntry::table_entry).collect();
        self.append(&table)?;
        let ends = ends(self.records.len() as u64, table.len() as u64, table_at, self.at);
        self.append(&ends)?;
        Ok(self.at)
    }

    fn close_record(&mut self) -> io::Result<()> {
        let Some((begun, hasher)) = self.open.take() else {
            return Ok(());
        };
        let last = self.records.len() - 1;
        if self.at - begun != self.records[last].bytes {
            let what = format!(
                "record {} got {} bytes of {}",
                self.records[last].name,
                self.at - begun,
                self.records[last].bytes
            );
            return Err(io::Error::other(what));
        }
        self.records[last].crc = hasher.finalize();
        let header = self.local_header(last);
        self.file.write_all_at(&header, self.start + self.records[last].header)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.start + self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn local_header(&self, nth: usize) -> Vec<u8> {
        let record = &self.records[nth];
        let unpadded = record.header + LOCAL_HEADER + record.name.len() as u64 + LOCAL_EXTRA;
        let padding = unpadded.next_multiple_of(ALIGNMENT) - unpadded;
        let mut header = Vec::new();
        header.extend(0x0403_4b50u32.to_le_bytes());
        // Version 4.5 (64-bit sizes), UTF-8 names, stored, no time.
        header.extend([45, 0, 0, 8, 0, 0, 0, 0, 0x21, 0]);
        header.extend(record.crc.to_le_bytes());
        header.extend([0xff; 8]);
        header.extend((record.name.len() as u16).to_le_bytes());
        header.extend(((LOCAL_EXTRA + padding) as u16).to_le_bytes());
        header.extend(record.name.as_bytes());
        header.extend([1, 0, 16, 0]);
        header.extend(record.bytes.to_le_bytes());
        header.extend(record.bytes.to_le_bytes());
        // Same padding field as PyTorch's own writer.
        header.extend(*b"FB");
        header.extend((padding as u16).to_le_bytes());
        header.extend(vec![b'Z'; padding as usize]);
        header
    }
}

impl RecordEntry {
    fn table_entry(&self) -> Vec<u8> {
        let mut entry = Vec::new();
        entry.extend(0x0201_4b50u32.to_le_bytes());
        entry.extend([45, 0, 45, 0, 0, 8, 0, 0, 0, 0, 0x21, 0]);
        entry.extend(self.crc.to_le_bytes());
        entry.extend([0xff; 8]);
        entry.extend((self.name.len() as u16).to_le_bytes());
        entry.extend(28u16.to_le_bytes());
        // No comment, disk 0, no attributes.
        entry.extend([0; 10]);
        entry.extend([0xff; 4]);
        entry.extend(self.name.as_bytes());
        entry.extend([1, 0, 24, 0]);
        entry.extend(self.bytes.to_le_bytes());
        entry.extend(self.bytes.to_le_bytes());
        entry.extend(self.header.to_le_bytes());
        entry
    }
}

/// Returns the 64-bit end record, its locator, and the classic end record that points to them.
fn ends(count: u64, table_bytes: u64, table_at: u64, at: u64) -> Vec<u8> {
    let mut ends = Vec::new();
    ends.extend(0x0606_4b50u32.to_le_bytes());
    ends.extend(44u64.to_le_bytes());
    ends.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for field in [count, count, table_bytes, table_at] {
        ends.extend(field.to_le_bytes());
    }
    ends.extend(0x0706_4b50u32.to_le_bytes());
    ends.extend([0; 4]);
    ends.extend(at.to_le_bytes());
    ends.extend(1u32.to_le_bytes());
    ends.extend(0x0605_4b50u32.to_le_bytes());
    ends.extend([0; 4]);
    ends.extend([0xff; 12]);
    ends.extend([0; 2]);
    ends
}
