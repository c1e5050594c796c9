//! Chunk boundaries of an image, tensor by tensor.

use std::ops::Range;

use crate::TensorEntry;

/// Chunk size for images up to 4 GiB, bytes: small enough that a changed or damaged chunk costs little, large enough
/// that the digest table is 1/4096 of the image.
pub const DEFAULT_CHUNK_BYTES: u32 = 64 << 10;

/// Maximum chunk size, bytes.
pub const MAX_CHUNK_BYTES: u32 = 64 << 20;

/// Maximum number of chunks in one image.
pub const MAX_CHUNKS: u64 = 1 << 22;

/// Alignment of tensors in an image and of chunks in a file, bytes. Every chunk can then be copied with stores of a
/// whole cache line. Padding bytes are zero.
pub const TENSOR_ALIGN: u64 = 64;

/// Maximum number of chunks in an image before the chunk size is doubled.
const TABLE_ROWS: u64 = 1 << 16;

/// Returns the chunk size for an image: the default, doubled beyond 4 GiB until the image has at most `TABLE_ROWS`
/// chunks.
pub fn chunk_bytes_for(image_bytes: u64) -> u32 {
    let mut chunk_bytes = DEFAULT_CHUNK_BYTES;
    while image_bytes.div_ceil(u64::from(chunk_bytes)) > TABLE_ROWS && chunk_bytes < MAX_CHUNK_BYTES {
        chunk_bytes *= 2;
    }
    chunk_bytes
}

/// Chunks of an image. Every tensor starts a new chunk and is cut every `chunk_bytes`, so a chunk never spans two
/// tensors, equal boxes have equal chunks on every rank, and a tensor without bytes has no chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkLayout {
    chunk_bytes: u64,
    spans: Vec<TensorSpan>,
    count: u32,
}

/// Byte range of a tensor in the image and its first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TensorSpan {
    at: u64,
    bytes: u64,
    first: u32,
}

impl ChunkLayout {
    /// Computes the chunks of an image. Returns `None` if the chunk size is out of bounds or no multiple of
    /// [`TENSOR_ALIGN`], an entry's size exceeds 64 bits, or there would be more than [`MAX_CHUNKS`].
    pub fn new(tensors: &[TensorEntry], chunk_bytes: u32) -> Option<Self> {
        let sound = (1..=MAX_CHUNK_BYTES).contains(&chunk_bytes) && u64::from(chunk_bytes).is_multiple_of(TENSOR_ALIGN);
        if !sound {
            return None;
        }
        let chunk_bytes = u64::from(chunk_bytes);
        let mut spans = Vec::with_capacity(tensors.len());
        let mut count = 0u64;
        for entry in tensors {
            let bytes = entry.boxed.bytes()?;
            entry.at.checked_add(bytes)?;
            spans.push(TensorSpan {
                at: entry.at,
                bytes,
                first: u32::try_from(count).ok()?,
            });
            count = count
                .checked_add(bytes.div_ceil(chunk_bytes))
                .filter(|count| *count <= MAX_CHUNKS)?;
        }
        Some(Self {
            chunk_bytes,
            spans,
            count: count as u32,
        })
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the position in the tensor table of the tensor that contains `chunk`; `None` past the end.
    pub fn tensor_of(&self, chunk: u32) -> Option<usize> {
        // Take the last of equal first chunks: earlier tensors with the same first chunk have no bytes.
        (chunk < self.count).then(|| self.spans.partition_point(|span| span.first <= chunk) - 1)
    }

    /// Returns the chunks of the tensor at position `place` of the tensor table.
    pub fn chunks_of(&self, place: usize) -> Range<u32> {
        let first = |place: usize| self.spans.get(place).map_or(self.count, |span| span.first);
        first(place)..first(place.saturating_add(1))
    }

    /// Returns the byte range of a chunk in the image; `None` past the end.
    pub fn range(&self, chunk: u32) -> Option<Range<u64>> {
        let span = self.spans[self.tensor_of(chunk)?];
        let from = u64::from(chunk - span.first) * self.chunk_bytes;
        let to = (from + self.chunk_bytes).min(span.bytes);
        Some(span.at + from..span.at + to)
    }

    /// Returns the chunk that contains byte `at` of the image; past the last chunk, the number of chunks. Requires
    /// tensors in image order.
    pub fn chunk_holding(&self, at: u64) -> u32 {
        let behind = self.spans.partition_point(|span| span.at + span.bytes <= at);
        let span = self.spans.get(behind);
        span.map_or(self.count, |span| {
            span.first + (at.saturating_sub(span.at) / self.chunk_bytes) as u32
        })
    }

    /// Iterates over the byte ranges of all chunks, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.spans.iter().flat_map(|span| {
            let cuts = (0..span.bytes.div_ceil(self.chunk_bytes)).map(|cut| cut * self.chunk_bytes);
            cuts.map(|from| span.at + from..span.at + (from + self.chunk_bytes).min(span.bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, ShardIndex, TensorBox};

    fn entries(sizes: &[u64]) -> Vec<TensorEntry> {
        let boxes = sizes.iter().map(|size| TensorBox::whole("t", Dtype::U8, vec![*size]));
        ShardIndex::lay_out(boxes).0
    }

    #[test]
    fn every_tensor_starts_a_chunk() {
        let chunking = ChunkLayout::new(&entries(&[130, 0, 64, 1]), 64).expect("in bounds");
        let ranges: Vec<_> = chunking.ranges().collect();
        assert_eq!(ranges, [0..64, 64..128, 128..130, 192..256, 256..257]);
        assert_eq!(chunking.count(), 5);
        for (chunk, range) in (0..).zip(&ranges) {
            assert_eq!(chunking.range(chunk).as_ref(), Some(range));
        }
        assert_eq!(chunking.range(5), None);
        assert_eq!(
            [0, 2, 3, 4].map(|chunk| chunking.tensor_of(chunk)),
            [Some(0), Some(0), Some(2), Some(3)]
        );
        assert_eq!(
            [0, 1, 2, 9].map(|place| chunking.chunks_of(place)),
            [0..3, 3..3, 3..4, 5..5]
        );
        assert_eq!(
            [0, 64, 129, 192, 256, 257].map(|at| chunking.chunk_holding(at)),
            [0, 1, 2, 3, 4, 5]
        );
    }

    #[test]
    fn an_empty_image_has_no_chunks() {
        assert_eq!(ChunkLayout::new(&[], 64).expect("in bounds").count(), 0);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let small = entries(&[1]);
        for chunk_bytes in [0, 1, 63, 65, MAX_CHUNK_BYTES + 64] {
            assert_eq!(ChunkLayout::new(&small, chunk_bytes), None, "{chunk_bytes}");
        }
        assert_eq!(ChunkLayout::new(&entries(&[u64::MAX]), MAX_CHUNK_BYTES), None);
        assert_eq!(ChunkLayout::new(&entries(&[MAX_CHUNKS * 64 + 1]), 64), None);
    }

    #[test]
    fn chunks_grow_with_the_image_so_that_the_table_does_not() {
        assert_eq!(chunk_bytes_for(0), DEFAULT_CHUNK_BYTES);
        assert_eq!(chunk_bytes_for(4 << 30), DEFAULT_CHUNK_BYTES);
        assert_eq!(chunk_bytes_for((4 << 30) + 1), 2 * DEFAULT_CHUNK_BYTES);
        assert_eq!(chunk_bytes_for(80 << 30), 32 * DEFAULT_CHUNK_BYTES);
        assert_eq!(chunk_bytes_for(u64::MAX), MAX_CHUNK_BYTES);
    }
}
