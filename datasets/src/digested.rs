//! 64-bit text digests, and a hasher for tables with such digests as keys.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;

/// Returns a digest of a text, equal in every run.
pub(crate) fn digest(text: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(text);
    hasher.finish()
}

/// Hasher that uses a digest unchanged, because it is already mixed.
#[derive(Debug, Default)]
pub(crate) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not used with digests; keeps other keys valid.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}
