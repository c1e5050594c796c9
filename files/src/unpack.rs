//! Decompression of gzip and Zstandard files, with a limit for the ratio of text to packed bytes (RG-11).

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use thiserror::Error;

use crate::zst;

/// Bytes of text that a packed file of any size may expand to, 256 MiB.
const FREE_BYTES: u64 = 256 << 20;
/// Maximum bytes of text for each packed byte, beyond [`FREE_BYTES`]. Logs compress to a tenth, the most repetitive to
/// a hundredth.
const RATIO: u64 = 100;

/// Compression format of a file, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionFormat {
    /// Not compressed in a known format.
    Plain,
    /// gzip, any number of members.
    Gzip,
    /// Zstandard, any number of frames.
    Zstandard,
}

impl CompressionFormat {
    /// Detects the format from the first bytes of a file.
    pub fn of(head: &[u8]) -> Self {
        if head.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if head.starts_with(&zst::MAGIC) {
            Self::Zstandard
        } else {
            Self::Plain
        }
    }
}

/// Error of a packed file that expands to more text than its size allows; holds the limit in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "it holds more than {0} bytes of text, over {RATIO} times its size on disk; unpack it and name the unpacked file"
)]
pub struct RatioLimit(u64);

/// Returns a reader of a file's text, decompressed by the format of its first bytes. `packed_bytes` is its size on
/// disk; if given, the reader fails as that of [`within_ratio`] does. Fails if the first bytes cannot be read.
pub fn unpacked(mut packed: Box<dyn BufRead>, packed_bytes: Option<u64>) -> io::Result<Box<dyn BufRead>> {
    let text: Box<dyn Read> = match CompressionFormat::of(packed.fill_buf()?) {
        CompressionFormat::Plain => return Ok(packed),
        CompressionFormat::Gzip => Box::new(MultiGzDecoder::new(packed)),
        CompressionFormat::Zstandard => Box::new(zst::ZstdReader::new(packed)),
    };
    let text: Box<dyn Read> = match packed_bytes {
        Some(packed) => Box::new(within_ratio(text, packed)),
        None => text,
    };
    Ok(Box::new(BufReader::with_capacity(1 << 16, text)))
}

/// Returns a reader that fails with [`ErrorKind::QuotaExceeded`] and a [`RatioLimit`] if `text` is longer than 256 MiB
/// and than 100 times `packed_bytes`.
pub fn within_ratio(text: impl Read, packed_bytes: u64) -> impl Read {
    RatioReader::new(text, packed_bytes)
}

/// Reader that fails once more than `limit` bytes were read.
struct RatioReader<R> {
    text: R,
    /// Maximum bytes of text.
    limit: u64,
    /// Bytes until the limit.
    left: u64,
}

impl<R: Read> RatioReader<R> {
    fn new(text: R, packed: u64) -> Self {
        let limit = packed.saturating_mul(RATIO).max(FREE_BYTES);
        Self {
            text,
            limit,
            left: limit,
        }
    }
}

impl<R: Read> Read for RatioReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left.max(1)).unwrap_or(usize::MAX).min(out.len());
        let read = self.text.read(&mut out[..room])?;
        if read as u64 > self.left {
            return Err(io::Error::new(ErrorKind::QuotaExceeded, RatioLimit(self.limit)));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn packed(text: &[u8], times: usize) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..times).for_each(|_| gzip.write_all(text).expect("packed"));
        gzip.finish().expect("packed")
    }

    fn text_of(packed: Vec<u8>) -> io::Result<u64> {
        let size = packed.len() as u64;
        let reader = Box::new(BufReader::new(io::Cursor::new(packed)));
        io::copy(&mut unpacked(reader, Some(size))?, &mut io::sink())
    }

    #[test]
    fn members_follow_each_other() {
        let both = [packed(b"one\n", 1), packed(b"two\n", 1)].concat();
        assert_eq!(text_of(both).expect("sound"), 8);
    }

    #[test]
    fn a_bomb_ends_at_its_limit_and_names_the_remedy_rg_11() {
        let megabyte = vec![b'x'; 1 << 20];
        assert_eq!(text_of(packed(&megabyte, 2)).expect("within"), 2 << 20);
        let error = text_of(packed(&megabyte, 257)).expect_err("beyond");
        assert!(error.to_string().contains("unpack it"), "{error}");
    }
}
