//! Texts by a digest of 64 bits, and tables that take such digests as they are.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;

/// A digest of a text, the same in every run.
pub(crate) fn digest(text: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(text);
    hasher.finish()
}

/// Takes a digest as the place in a table: it is mixed already.
#[derive(Debug, Default)]
pub(crate) struct Digested(u64);

impl Hasher for Digested {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not what it is for; any other key than a digest still gets a place.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}
