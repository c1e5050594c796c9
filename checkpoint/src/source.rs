//! Tiers: where a chunk may come from.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use rankguard_model::{JobId, Rank};
use serde::Serialize;

use crate::arena::{Arena, ArenaError, SealedImage, kernel};
use crate::format::{CheckpointId, ChunkDigest, ChunkPlace, Origin};
use crate::store::direct::Aligned;
use crate::store::reader::Reader;
use crate::store::runs::{self, Run};
use crate::store::{Store, StoreError};

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

/// One chunk of one shard, where it is kept, and what its bytes must hash to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkId {
    /// The job.
    pub job: JobId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The rank whose image it belongs to.
    pub rank: Rank,
    /// Its number in that image, from 0.
    pub chunk: u32,
    /// Its first byte in that image.
    pub at: u64,
    /// The file that keeps it, its first byte there, and its length.
    pub place: ChunkPlace,
    /// Its digest.
    pub digest: ChunkDigest,
}

impl ChunkId {
    /// Its length.
    pub fn bytes(&self) -> u32 {
        self.place.bytes
    }

    /// A copy of it that stays, if these bytes are the right ones.
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

/// Why a source that should have a chunk cannot give it.
pub type ChunkError = Box<dyn std::error::Error + Send + Sync>;

/// The bytes of a chunk where a source has them.
#[derive(Debug, Clone, Copy)]
pub enum ChunkBytes<'a> {
    /// In memory that nobody changes.
    Private(&'a [u8]),
    /// In a sealed slot, whose rank may still scribble over it: they are digested while they are copied out.
    Sealed(&'a SealedImage<'a>),
}

/// What a source says of one of the chunks it was asked for: its bytes, that it has nothing to do with it, or why it
/// cannot give it.
pub type Answer<'a> = Result<Option<ChunkBytes<'a>>, ChunkError>;

/// Something that may hold chunks. What it gives is checked by the caller, so it need not be trusted; it must answer
/// within a deadline of its own, and should stop trying a peer that does not answer (RG-9). Several threads ask at once.
pub trait ChunkSource: Sync {
    /// How far away it is.
    fn tier(&self) -> Tier;

    /// What to call it in a message (`peer node-3`).
    fn name(&self) -> String {
        self.tier().to_string()
    }

    /// The chunk; `None` when this source has nothing to do with that shard.
    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError>;

    /// Takes a good copy of a chunk that it gave wrong or could not give; says whether it did. Most sources do not: see
    /// [`crate::repair::Healing`].
    fn heal(&self, _id: &ChunkId, _good: &[u8]) -> Result<bool, ChunkError> {
        Ok(false)
    }

    /// Answers for each of `ids` once, by its place among them: chunks that lie near each other in one file, in the order of
    /// their places. A source that can give them in one go does.
    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, Answer<'_>)) {
        for (nth, id) in ids.iter().enumerate() {
            match self.chunk(id) {
                Ok(bytes) => answer(nth, Ok(bytes.as_deref().map(ChunkBytes::Private))),
                Err(error) => answer(nth, Err(error)),
            }
        }
    }
}

/// [`ChunkSource::chunk`] of a source whose own way is to answer for many at once.
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

/// The sealed images of a node's arenas, as they were when this was made. An image that is replaced meanwhile gives bytes
/// of the wrong digest, which the caller refuses like any other damage.
pub struct ArenaSource<'a> {
    images: BTreeMap<(JobId, CheckpointId, Rank), SealedImage<'a>>,
}

impl<'a> ArenaSource<'a> {
    /// Looks into `arenas`.
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

    /// Whether it has the shard of a rank.
    pub fn holds(&self, job: &JobId, checkpoint: CheckpointId, rank: Rank) -> bool {
        self.images.contains_key(&(job.clone(), checkpoint, rank))
    }

    /// A chunk by name, checked against the rank's own digest only: what another agent asks for. `None` when there is
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

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, Answer<'_>)) {
        for (nth, id) in ids.iter().enumerate() {
            let image = self.images.get(&(id.job.clone(), id.checkpoint, id.rank));
            answer(nth, Ok(image.map(ChunkBytes::Sealed)));
        }
    }
}

impl ChunkSource for Store {
    fn tier(&self) -> Tier {
        Tier::Disk
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let mut bytes = None;
        self.chunks(&[id], &mut |_, given| bytes = Some(given.map(private)));
        bytes.unwrap_or(Ok(None))
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, Answer<'_>)) {
        let places = (0u32..).zip(ids).map(|(nth, id)| (nth, id.place)).collect();
        let mut open = None;
        for run in runs::of(places) {
            // All are of one job: they belong to one checkpoint.
            let job = &ids[run.chunks[0].0 as usize].job;
            if self.read_run(job, &run, &mut open, answer).is_ok() {
                continue;
            }
            // One bad sector is not everything around it.
            for alone in run.chunks.iter().flat_map(|chunk| runs::of(vec![*chunk])) {
                if let Err(error) = self.read_run(job, &alone, &mut open, answer) {
                    answer(alone.chunks[0].0 as usize, Err(error.into()));
                }
            }
        }
    }
}

impl Store {
    /// Reads a run, of the file that is open if it is that one.
    fn read_run(
        &self,
        job: &JobId,
        run: &Run,
        open: &mut Option<(Origin, Reader)>,
        answer: &mut dyn FnMut(usize, Answer<'_>),
    ) -> Result<(), StoreError> {
        thread_local! {
            /// Fresh memory costs more than the read: each thread keeps its own.
            static BUFFER: RefCell<Aligned> = RefCell::default();
        }
        let path = self.shard_path(job, run.file.id(), run.file.rank)?;
        let opened = open.take().filter(|(file, _)| *file == run.file);
        let (_, reader) = match opened {
            Some(same) => open.insert(same),
            None => open.insert((run.file, Reader::open(&path)?)),
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
