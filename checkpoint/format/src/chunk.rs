//! How an image is cut into chunks.

use std::ops::Range;

/// Chunk size that writers use unless told otherwise: small enough for one message between agents, large enough that
/// its digest is a rounding error.
pub const DEFAULT_CHUNK_BYTES: u32 = 1 << 20;

/// Largest chunk that a reader accepts.
pub const MAX_CHUNK_BYTES: u32 = 64 << 20;

/// Most chunks that a reader accepts in one image (4 TiB at the default size).
pub const MAX_CHUNKS: u64 = 1 << 22;

/// An image's length and the size of its chunks. The last chunk may be shorter; an empty image has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunking {
    image_bytes: u64,
    chunk_bytes: u32,
}

impl Chunking {
    /// `None` when the chunk size is out of bounds or there would be too many chunks.
    pub fn new(image_bytes: u64, chunk_bytes: u32) -> Option<Self> {
        let fits =
            (1..=MAX_CHUNK_BYTES).contains(&chunk_bytes) && image_bytes.div_ceil(u64::from(chunk_bytes)) <= MAX_CHUNKS;
        fits.then_some(Self {
            image_bytes,
            chunk_bytes,
        })
    }

    /// Number of chunks.
    pub fn count(self) -> u32 {
        let count = self.image_bytes.div_ceil(u64::from(self.chunk_bytes));
        u32::try_from(count).expect("checked when made: at most MAX_CHUNKS")
    }

    /// Where a chunk lies in the image; `None` past the end.
    pub fn range(self, chunk: u32) -> Option<Range<u64>> {
        let start = u64::from(chunk) * u64::from(self.chunk_bytes);
        let end = (start + u64::from(self.chunk_bytes)).min(self.image_bytes);
        (start < end).then_some(start..end)
    }

    /// The chunk that holds the byte at `at`, which must lie in the image.
    pub fn chunk_at(self, at: u64) -> u32 {
        u32::try_from(at / u64::from(self.chunk_bytes)).unwrap_or(u32::MAX)
    }

    /// The ranges of all chunks, in order.
    pub fn ranges(self) -> impl Iterator<Item = Range<u64>> {
        (0..self.count()).filter_map(move |chunk| self.range(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_chunk_is_as_long_as_what_is_left() {
        let chunking = Chunking::new(10, 4).expect("in bounds");
        assert_eq!(chunking.ranges().collect::<Vec<_>>(), [0..4, 4..8, 8..10]);
        assert_eq!(chunking.range(3), None);
        assert_eq!(chunking.chunk_at(8), 2);
    }

    #[test]
    fn an_empty_image_has_no_chunks() {
        assert_eq!(Chunking::new(0, 4).expect("in bounds").count(), 0);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert_eq!(Chunking::new(1, 0), None);
        assert_eq!(Chunking::new(1, MAX_CHUNK_BYTES + 1), None);
        assert_eq!(Chunking::new(u64::MAX, MAX_CHUNK_BYTES), None);
    }
}
