//! CRC-32C: what the rank can afford while it copies. It finds damage on the way from rank to agent; what is kept is
//! protected by [`crate::Digest`].

use crc_fast::CrcAlgorithm;

/// A CRC-32C in the making.
pub struct Crc32c(crc_fast::Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of everything so far.
    pub fn value(&self) -> u32 {
        narrow(self.0.finalize())
    }
}

/// The CRC-32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

fn narrow(wide: u64) -> u32 {
    u32::try_from(wide).expect("a 32-bit CRC fits in 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        let mut crc = Crc32c::default();
        for piece in bytes.chunks(333) {
            crc.update(piece);
        }
        assert_eq!(crc.value(), crc32c(&bytes));
    }
}
