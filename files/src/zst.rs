//! Zstandard files: all frames in sequence, in bounded memory.
//!
//! Absent: dictionaries, and the verification of a frame's content checksum, which the decoder omits.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// First bytes of a frame.
pub const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Streaming decompressor. A frame with a larger window than the decoder allows is an error.
pub struct ZstdReader<R> {
    packed: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    /// Decompresses the bytes of `packed`.
    pub fn new(packed: R) -> Self {
        Self {
            packed,
            decoder: FrameDecoder::new(),
            in_frame: false,
        }
    }

    /// Begins the next frame, skipping frames without data; returns false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.packed.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.packed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut (&mut self.packed).take(u64::from(length)), &mut io::sink())?;
                }
                Err(problem) => return Err(wrong(&problem)),
            }
        }
    }
}

fn wrong(problem: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {problem}"))
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                self.in_frame = self.begin()?;
                if !self.in_frame {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let blocks = self
                    .decoder
                    .decode_blocks(&mut self.packed, BlockDecodingStrategy::UptoBlocks(1));
                blocks.map_err(|problem| wrong(&problem))?;
            }
            let read = self.decoder.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            self.in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn frame(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    fn all(packed: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        ZstdReader::new(packed).read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn frames_follow_each_other_and_those_without_data_are_passed_over() {
        let mut packed = frame(&"one\n".repeat(50_000));
        packed.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9]);
        packed.extend(frame("two\n"));
        assert_eq!(all(&packed).expect("sound"), "one\n".repeat(50_000) + "two\n");
        assert_eq!(all(&[]).expect("nothing"), "");
        assert!(all(&packed[..packed.len() - 3]).is_err(), "cut short");
        assert!(all(b"\x28\xb5\x2f\xfdnonsense").is_err());
    }
}
