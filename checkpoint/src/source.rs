//! Tiers: where a chunk may come from.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::FileExt;

use rankguard_model::{JobId, Rank};
use serde::Serialize;

use crate::arena::{Arena, ArenaError};
use crate::format::{CheckpointId, Digest};
use crate::store::Store;

/// How far away a copy is, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Memory of this node.
    Arena,
    /// Memory of another node.
    Peer,
    /// The checkpoint store.
    Disk,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Arena => "arena",
            Self::Peer => "peer",
            Self::Disk => "disk",
        })
    }
}

/// One chunk of one shard, and what its bytes must hash to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkId {
    /// The job.
    pub job: JobId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The rank that wrote the shard.
    pub rank: Rank,
    /// Its number, from 0.
    pub chunk: u32,
    /// Its first byte in the image.
    pub at: u64,
    /// Its length.
    pub bytes: u32,
    /// Its digest.
    pub digest: Digest,
}

/// Why a source that should have a chunk cannot give it.
pub type ChunkError = Box<dyn std::error::Error + Send + Sync>;

/// Something that may hold chunks. What it gives is checked by the caller, so it need not be trusted; it must answer
/// within a deadline of its own, and should stop trying a peer that does not answer (RG-9).
pub trait ChunkSource {
    /// How far away it is.
    fn tier(&self) -> Tier;

    /// What to call it in a message (`peer node-3`).
    fn name(&self) -> String {
        self.tier().to_string()
    }

    /// The chunk; `None` when this source has nothing to do with that shard.
    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError>;
}

/// The sealed images of a node's arenas, as they were when this was made. An image that is replaced meanwhile gives bytes
/// of the wrong digest, which the caller refuses like any other damage.
pub struct ArenaSource<'a> {
    images: BTreeMap<(JobId, CheckpointId, Rank), crate::arena::SealedImage<'a>>,
}

impl<'a> ArenaSource<'a> {
    /// Looks into `arenas`.
    pub fn new(arenas: impl IntoIterator<Item = &'a Arena>) -> Self {
        let images = arenas.into_iter().flat_map(Arena::sealed_images);
        let key = |image: &crate::arena::SealedImage<'a>| {
            let draft = image.draft();
            (draft.job.clone(), draft.id(), draft.rank)
        };
        Self {
            images: images.map(|image| (key(&image), image)).collect(),
        }
    }

    /// Whether it has the shard of a rank.
    pub fn holds(&self, job: &JobId, checkpoint: CheckpointId, rank: Rank) -> bool {
        self.images.contains_key(&(job.clone(), checkpoint, rank))
    }

    /// A chunk by name, checked against the rank's own checksum only: what another agent asks for. `None` when there is
    /// no such shard or chunk here.
    pub fn sealed_chunk(
        &self,
        job: &JobId,
        checkpoint: CheckpointId,
        rank: Rank,
        chunk: u32,
    ) -> Result<Option<Vec<u8>>, ArenaError> {
        match self.images.get(&(job.clone(), checkpoint, rank)) {
            Some(image) => image.chunk(chunk),
            None => Ok(None),
        }
    }
}

impl ChunkSource for ArenaSource<'_> {
    fn tier(&self) -> Tier {
        Tier::Arena
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        Ok(self.sealed_chunk(&id.job, id.checkpoint, id.rank, id.chunk)?)
    }
}

impl ChunkSource for Store {
    fn tier(&self) -> Tier {
        Tier::Disk
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let (file, _) = crate::store::open_file(&self.shard_path(&id.job, id.checkpoint, id.rank)?)?;
        let mut bytes = vec![0; id.bytes as usize];
        file.read_exact_at(&mut bytes, id.at)?;
        Ok(Some(bytes))
    }
}
