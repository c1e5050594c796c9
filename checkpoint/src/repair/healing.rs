//! Chunk source for a restore that repairs the store in passing.

use crate::format::ChunkDigest;
use crate::source::{ChunkError, ChunkId, ChunkReadResult, ChunkSource, SourceTier};
use crate::store::{Store, files};

/// Store that a restore may write to: a damaged chunk is rewritten once another source has supplied a good copy.
#[derive(Debug)]
pub struct HealingStore<'a>(pub &'a Store);

impl ChunkSource for HealingStore<'_> {
    fn tier(&self) -> SourceTier {
        self.0.tier()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        self.0.chunk(id)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        self.0.chunks(ids, answer);
    }

    /// Repairs only within an existing file of sufficient length; other damage requires [`repair`], which knows the
    /// whole file.
    fn heal(&self, id: &ChunkId, good: &[u8]) -> Result<bool, ChunkError> {
        if good.len() != id.bytes() as usize || ChunkDigest::of(good) != id.digest {
            return Ok(false);
        }
        let file = id.place.file;
        let at = id.place.at;
        let path = self.0.shard_path(&id.job, file.id(), file.rank)?;
        let length = files::open(&path)?.1;
        if length < at + good.len() as u64 {
            return Ok(false);
        }
        files::repair_ranges(&path, length, &[(at, good.to_vec())])?;
        Ok(true)
    }
}
