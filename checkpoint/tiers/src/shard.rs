//! Shard file as described by the indexes: byte ranges and their digests.

use std::collections::BTreeMap;
use std::ops::Range;

use rankguard_checkpoint::format::{ChunkDigest, ChunkOrigin, ShardIndex};

/// Shard file with the known digests of its ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardFile {
    /// Checkpoint and rank that wrote the file.
    pub(crate) file: ChunkOrigin,
    /// Length in bytes if its own index is known; otherwise the end of the last chunk that is referenced.
    pub(crate) bytes: u64,
    /// True if `bytes` is the whole length.
    pub(crate) whole: bool,
    /// Offset, length and digest of each chunk, sorted by offset.
    pub(crate) chunks: Vec<(u64, u32, ChunkDigest)>,
}

impl ShardFile {
    /// Returns the byte range of a chunk in the file.
    pub(crate) fn range(chunk: &(u64, u32, ChunkDigest)) -> Range<u64> {
        chunk.0..chunk.0 + u64::from(chunk.1)
    }

    /// Splits the first `size` bytes of the file into pieces of about `target` bytes with the chunks that begin in
    /// each; no chunk spans two pieces.
    pub(crate) fn pieces(&self, size: u64, target: u64) -> Vec<ShardPiece<'_>> {
        let mut pieces = Vec::new();
        let mut from = 0;
        let mut first = 0;
        let mut end = 0;
        for (nth, chunk) in self.chunks.iter().enumerate() {
            if chunk.0 >= end && chunk.0 > from && Self::range(chunk).end - from > target {
                let chunks = &self.chunks[first..nth];
                pieces.push(ShardPiece {
                    range: from..chunk.0,
                    chunks,
                });
                (from, first) = (chunk.0, nth);
            }
            end = Self::range(chunk).end.max(end);
        }
        if from < size {
            let chunks = &self.chunks[first..];
            pieces.push(ShardPiece {
                range: from..size,
                chunks,
            });
        }
        pieces
    }
}

/// Piece of a shard file.
#[derive(Debug, Clone)]
pub(crate) struct ShardPiece<'a> {
    pub(crate) range: Range<u64>,
    pub(crate) chunks: &'a [(u64, u32, ChunkDigest)],
}

/// Chunk that differs from its index or lies past the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkMismatch {
    pub(crate) at: u64,
    pub(crate) stated: ChunkDigest,
    pub(crate) found: ChunkDigest,
}

impl ShardPiece<'_> {
    /// Compares every chunk of the piece with its digest.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), ChunkMismatch> {
        for chunk in self.chunks {
            let range = ShardFile::range(chunk);
            let part = range.start.checked_sub(self.range.start).and_then(|from| {
                let from = usize::try_from(from).ok()?;
                bytes.get(from..from.checked_add(chunk.1 as usize)?)
            });
            // A truncated chunk is reported with the digest of its remaining bytes.
            let found = ChunkDigest::of(part.unwrap_or_default());
            if part.is_none() || found != chunk.2 {
                let at = chunk.0;
                let stated = chunk.2;
                return Err(ChunkMismatch { at, stated, found });
            }
        }
        Ok(())
    }
}

/// Returns every shard file that these indexes reference, own and borrowed.
pub(crate) fn files(indexes: &[ShardIndex]) -> Vec<ShardFile> {
    let mut chunks: BTreeMap<ChunkOrigin, BTreeMap<u64, (u32, ChunkDigest)>> = BTreeMap::new();
    let mut whole: BTreeMap<ChunkOrigin, u64> = BTreeMap::new();
    for index in indexes {
        chunks.entry(index.own()).or_default();
        whole.insert(index.own(), index.file_bytes());
        for (place, digest) in index.places().into_iter().zip(&index.chunks) {
            chunks
                .entry(place.file)
                .or_default()
                .insert(place.at, (place.bytes, *digest));
        }
    }
    let file = |(file, chunks): (ChunkOrigin, BTreeMap<u64, (u32, ChunkDigest)>)| {
        let mut end = 0;
        // Two indexes may name the same bytes. Of overlapping chunks only one can be right, which its digest decides,
        // so each is checked separately.
        let chunks: Vec<_> = chunks
            .into_iter()
            .map(|(at, (bytes, digest))| (at, bytes, digest))
            .collect();
        for chunk in &chunks {
            end = ShardFile::range(chunk).end.max(end);
        }
        ShardFile {
            file,
            bytes: whole.get(&file).copied().unwrap_or(end),
            whole: whole.contains_key(&file),
            chunks,
        }
    };
    chunks.into_iter().map(file).collect()
}
