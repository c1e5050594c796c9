//! A restore that repairs what it comes across.

use crate::format::ChunkDigest;
use crate::source::{Answer, ChunkError, ChunkId, ChunkSource, Tier};
use crate::store::{Store, files};

/// A store that a restore may write to: a chunk that it gave wrong is written again in passing, once a good copy has come
/// from elsewhere.
#[derive(Debug)]
pub struct Healing<'a>(pub &'a Store);

impl ChunkSource for Healing<'_> {
    fn tier(&self) -> Tier {
        self.0.tier()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        self.0.chunk(id)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, Answer<'_>)) {
        self.0.chunks(ids, answer);
    }

    /// Only within a file that is there and long enough: the rest is for [`repair`], which knows the whole file.
    fn heal(&self, id: &ChunkId, good: &[u8]) -> Result<bool, ChunkError> {
        if good.len() != id.bytes() as usize || ChunkDigest::of(good) != id.digest {
            return Ok(false);
        }
        let (file, at) = (id.place.file, id.place.at);
        let path = self.0.shard_path(&id.job, file.id(), file.rank)?;
        let length = files::open(&path)?.1;
        if length < at + good.len() as u64 {
            return Ok(false);
        }
        files::mend(&path, length, &[(at, good.to_vec())])?;
        Ok(true)
    }
}
