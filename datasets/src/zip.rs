//! Reader of a zip archive with one file, as a stream. Absent: ZIP64, encryption, archives of many
//! files.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use flate2::read::DeflateDecoder;

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zip archive: {what}"))
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<usize> {
    let field = bytes.get(at..at + 2).ok_or_else(|| wrong("ends too early"))?;
    Ok(usize::from(field[0]) | usize::from(field[1]) << 8)
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    Ok(u16_at(bytes, at)? as u64 | (u16_at(bytes, at + 2)? as u64) << 16)
}

/// Opens the first entry that is a file and was not added by macOS.
pub(crate) fn only_file(mut file: File) -> io::Result<Box<dyn Read>> {
    let length = file.seek(SeekFrom::End(0))?;
    // The directory is last, followed by a comment of at most 64 KiB.
    let tail_length = length.min(22 + 65_535);
    file.seek(SeekFrom::Start(length - tail_length))?;
    let mut tail = Vec::new();
    (&mut file).take(tail_length).read_to_end(&mut tail)?;
    let end = tail.windows(4).rposition(|four| four == b"PK\x05\x06");
    let end = end.ok_or_else(|| wrong("no directory, is it cut short?"))?;
    let size = u32_at(&tail, end + 12)?;
    let offset = u32_at(&tail, end + 16)?;
    if size > 1 << 20 || offset > length {
        return Err(wrong("a directory that cannot be"));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut directory = Vec::new();
    (&mut file).take(size).read_to_end(&mut directory)?;
    let mut at = 0;
    while directory.get(at..at + 4) == Some(b"PK\x01\x02") {
        let method = u16_at(&directory, at + 10)?;
        let packed = u32_at(&directory, at + 20)?;
        let name = u16_at(&directory, at + 28)?;
        let extra = u16_at(&directory, at + 30)?;
        let comment = u16_at(&directory, at + 32)?;
        let local = u32_at(&directory, at + 42)?;
        let title = directory.get(at + 46..at + 46 + name).unwrap_or_default();
        if !title.ends_with(b"/") && !title.starts_with(b"__MACOSX") {
            let mut header = [0; 30];
            file.seek(SeekFrom::Start(local))?;
            file.read_exact(&mut header)?;
            let skip = u16_at(&header, 26)? + u16_at(&header, 28)?;
            file.seek(SeekFrom::Start(local + 30 + skip as u64))?;
            let packed = BufReader::new(file).take(packed);
            return match method {
                0 => Ok(Box::new(packed)),
                8 => Ok(Box::new(DeflateDecoder::new(packed))),
                _ => Err(wrong("packed in a way that is not known here")),
            };
        }
        at += 46 + name + extra + comment;
    }
    Err(wrong("no file in it"))
}
