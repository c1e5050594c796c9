//! Chunk sources: the tiers that a restore reads chunks from.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use rankguard_model::{JobId, Rank};
use serde::Serialize;

use crate::arena::{Arena, ArenaError, SealedImage, kernel};
use crate::format::{CheckpointId, ChunkDigest, ChunkOrigin, ChunkPlace};
use crate::store::direct::SectorBuffer;
use crate::store::reader::RangeReader;
use crate::store::runs::{self, ChunkRun};
use crate::store::{Store, StoreError};

/// Distance of a copy, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceTier {
    /// Memory of this node.
    Arena,
    /// Memory of another node.
    Peer,
    /// The checkpoint store.
    Disk,
}

impl fmt::Display for SourceTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Arena => "arena",
            Self::Peer => "peer",
            Self::Disk => "disk",
        })
    }
}

/// Identity, location and expected digest of one chunk of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkId {
    pub job: JobId,
    pub checkpoint: CheckpointId,
    /// Rank of the image that contains the chunk.
    pub rank: Rank,
    /// Chunk number in that image, from 0.
    pub chunk: u32,
    /// First byte in that image.
    pub at: u64,
    /// File that stores the chunk, first byte in that file, and length in bytes.
    pub place: ChunkPlace,
    pub digest: ChunkDigest,
}

impl ChunkId {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> u32 {
        self.place.bytes
    }

    /// Returns a private copy of the chunk if the bytes have the expected length and digest.
    pub fn private_copy(&self, bytes: ChunkBytes<'_>) -> Option<Vec<u8>> {
        let copy = match bytes {
            ChunkBytes::Private(bytes) => bytes.to_vec(),
            ChunkBytes::Sealed(image) => {
                let mut copy = vec![0; self.bytes() as usize];
                image.copy_out(self.at, &mut copy).ok()?;
                copy
            }
        };
        (copy.len() == self.bytes() as usize && kernel::digest(&copy) == self.digest).then_some(copy)
    }
}

/// Error of a source that should have a chunk but cannot supply it.
pub type ChunkError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a chunk in the memory of a source.
#[derive(Debug, Clone, Copy)]
pub enum ChunkBytes<'a> {
    /// Private memory that no other process changes.
    Private(&'a [u8]),
    /// A sealed slot that its rank may still overwrite: the bytes are digested while they are copied out.
    Sealed(&'a SealedImage<'a>),
}

/// Result of a source for one requested chunk: its bytes, `None` if the source does not hold that shard, or an error.
pub type ChunkReadResult<'a> = Result<Option<ChunkBytes<'a>>, ChunkError>;

/// Source of chunks. The caller verifies all bytes, so a source need not be trusted. A source must answer within a
/// deadline of its own, and should stop trying a peer that does not answer (RG-9). Called from several threads.
pub trait ChunkSource: Sync {
    /// Returns the tier, which orders sources by distance.
    fn tier(&self) -> SourceTier;

    /// Returns the display name for messages (`peer node-3`).
    fn name(&self) -> String {
        self.tier().to_string()
    }

    /// Returns the chunk; `None` if this source does not hold that shard.
    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError>;

    /// Stores a verified copy of a chunk that this source returned damaged or not at all. Returns true if it was
    /// stored. The default does nothing; see [`crate::repair::HealingStore`].
    fn heal(&self, _id: &ChunkId, _good: &[u8]) -> Result<bool, ChunkError> {
        Ok(false)
    }

    /// Calls `answer` once for each of `ids`, with its position. The chunks lie near each other in one file and are
    /// sorted by location, so that a source can read them in one operation.
    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        for (nth, id) in ids.iter().enumerate() {
            match self.chunk(id) {
                Ok(bytes) => answer(nth, Ok(bytes.as_deref().map(ChunkBytes::Private))),
                Err(error) => answer(nth, Err(error)),
            }
        }
    }
}

/// Implements [`ChunkSource::chunk`] for a source that implements only [`ChunkSource::chunks`].
pub fn one_of_many(source: &dyn ChunkSource, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
    let mut given = Ok(None);
    source.chunks(&[id], &mut |_, answer| {
        given = answer.map(|bytes| match bytes {
            Some(ChunkBytes::Private(bytes)) => Some(bytes.to_vec()),
            _ => None,
        });
    });
    given
}

/// Sealed images in the arenas of a node at the time of construction. An image that is replaced later gives bytes with
/// a wrong digest, which the caller refuses as damage.
pub struct ArenaSource<'a> {
    images: BTreeMap<(JobId, CheckpointId, Rank), SealedImage<'a>>,
}

impl<'a> ArenaSource<'a> {
    /// Collects the sealed images of `arenas`.
    pub fn new(arenas: impl IntoIterator<Item = &'a Arena>) -> Self {
        let images = arenas.into_iter().flat_map(Arena::sealed_images);
        let key = |image: &SealedImage<'a>| {
            let index = image.index();
            (index.job.clone(), index.id(), index.rank)
        };
        Self {
            images: images.map(|image| (key(&image), image)).collect(),
        }
    }

    /// True if the shard of a rank is present.
    pub fn holds(&self, job: &JobId, checkpoint: CheckpointId, rank: Rank) -> bool {
        self.images.contains_key(&(job.clone(), checkpoint, rank))
    }

    /// Returns a chunk for another agent, verified only against the digest that the rank recorded. `None` if the shard
    /// or chunk is absent.
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
    fn tier(&self) -> SourceTier {
        SourceTier::Arena
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        Ok(self.sealed_chunk(&id.job, id.checkpoint, id.rank, id.chunk)?)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        for (nth, id) in ids.iter().enumerate() {
            let image = self.images.get(&(id.job.clone(), id.checkpoint, id.rank));
            answer(nth, Ok(image.map(ChunkBytes::Sealed)));
        }
    }
}

impl ChunkSource for Store {
    fn tier(&self) -> SourceTier {
        SourceTier::Disk
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let mut bytes = None;
        self.chunks(&[id], &mut |_, given| bytes = Some(given.map(private)));
        bytes.unwrap_or(Ok(None))
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        let places = (0u32..).zip(ids).map(|(nth, id)| (nth, id.place)).collect();
        let mut open = None;
        for run in runs::of(places) {
            // All ids belong to one checkpoint, so they have the same job.
            let job = &ids[run.chunks[0].0 as usize].job;
            if self.read_run(job, &run, &mut open, answer).is_ok() {
                continue;
            }
            // Retry chunk by chunk, so that one bad sector affects only its own chunk.
            for alone in run.chunks.iter().flat_map(|chunk| runs::of(vec![*chunk])) {
                if let Err(error) = self.read_run(job, &alone, &mut open, answer) {
                    answer(alone.chunks[0].0 as usize, Err(error.into()));
                }
            }
        }
    }
}

impl Store {
    /// Reads a run of chunks. Reuses the open file if the run lies in it.
    fn read_run(
        &self,
        job: &JobId,
        run: &ChunkRun,
        open: &mut Option<(ChunkOrigin, RangeReader)>,
        answer: &mut dyn FnMut(usize, ChunkReadResult<'_>),
    ) -> Result<(), StoreError> {
        thread_local! {
            /// Read buffer, reused per thread: allocating fresh memory costs more than the read.
            static BUFFER: RefCell<SectorBuffer> = RefCell::default();
        }
        let path = self.shard_path(job, run.file.id(), run.file.rank)?;
        let opened = open.take().filter(|(file, _)| *file == run.file);
        let (_, reader) = match opened {
            Some(same) => open.insert(same),
            None => open.insert((run.file, RangeReader::open(&path)?)),
        };
        BUFFER.with_borrow_mut(|buffer| {
            let bytes = reader
                .read(&(run.at..run.end), buffer)
                .map_err(|source| StoreError::Io {
                    what: "read",
                    path,
                    source,
                })?;
            for (nth, place) in &run.chunks {
                let from = (place.at - run.at) as usize;
                let part = &bytes[from..from + place.bytes as usize];
                answer(*nth as usize, Ok(Some(ChunkBytes::Private(part))));
            }
            Ok(())
        })
    }
}

fn private(given: Option<ChunkBytes<'_>>) -> Option<Vec<u8>> {
    match given? {
        ChunkBytes::Private(bytes) => Some(bytes.to_vec()),
        ChunkBytes::Sealed(_) => None,
    }
}
