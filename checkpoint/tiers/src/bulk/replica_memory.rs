//! Store in memory for images of other nodes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_checkpoint::ImageSource;
use rankguard_checkpoint::format::{CheckpointId, ShardIndex};
use rankguard_checkpoint::source::{ChunkError, ChunkId, ChunkSource, SourceTier};
use rankguard_model::{Generation, JobId};

use super::{PieceLayout, ReplicaKind, ReplicaName, TransferRefusal, runs};

/// Source of images besides the shelf, such as the arenas of a node.
pub trait ImageHolder: Send + Sync {
    /// Returns the chunks of these runs (first, count), concatenated; `None` if the holder has no such image.
    fn read(&self, name: &ReplicaName, runs: &[(u32, u32)], max: usize) -> Option<Result<Vec<u8>, String>>;
}

/// Store for images and parity of other nodes, in memory up to a limit.
#[derive(Debug)]
pub struct ReplicaMemory {
    inner: Mutex<ReplicaTable>,
}

#[derive(Debug, Default)]
struct ReplicaTable {
    limit: u64,
    images: BTreeMap<ReplicaName, ReceivedImage>,
    bytes: u64,
    fences: BTreeMap<JobId, Generation>,
    /// Buffers for reuse, within the limit: fresh memory costs more than copying into it.
    spare: Vec<Vec<u8>>,
    spare_bytes: u64,
}

#[derive(Debug)]
struct ReceivedImage {
    index: Arc<ShardIndex>,
    cut: Arc<PieceLayout>,
    pieces: Vec<Option<Arc<Vec<u8>>>>,
    sealed: bool,
}

/// Sealed image on the shelf.
#[derive(Debug, Clone)]
pub struct SealedReplica {
    index: Arc<ShardIndex>,
    cut: Arc<PieceLayout>,
    pieces: Vec<Arc<Vec<u8>>>,
}

impl ReplicaMemory {
    /// Creates a shelf for at most `limit` bytes of images.
    pub fn new(limit: u64) -> Self {
        let inner = Mutex::new(ReplicaTable {
            limit,
            ..ReplicaTable::default()
        });
        Self { inner }
    }

    fn lock(&self) -> MutexGuard<'_, ReplicaTable> {
        self.inner.lock().expect("no holder of the shelf panics")
    }

    /// Raises the fence of a job: lower generations can no longer push or fetch (RG-3). The fence never decreases.
    pub fn raise_fence(&self, job: &JobId, generation: Generation) {
        let mut inner = self.lock();
        let fence = inner.fences.entry(job.clone()).or_insert(generation);
        *fence = generation.max(*fence);
    }

    pub(super) fn check_fence(&self, job: &JobId, asked: Generation) -> Result<(), TransferRefusal> {
        match self.lock().fences.get(job) {
            Some(fence) if asked < *fence => Err(TransferRefusal::Stale {
                asked: asked.0,
                fence: fence.0,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the bytes of images on the shelf, received or reserved.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns the names of the sealed images of a job.
    pub fn names(&self, job: &JobId) -> Vec<ReplicaName> {
        let inner = self.lock();
        let sealed = inner
            .images
            .iter()
            .filter(|(name, image)| name.job == *job && image.sealed);
        sealed.map(|(name, _)| name.clone()).collect()
    }

    /// Releases images of a job that `which` selects by checkpoint, such as those that a newer commit replaces.
    pub fn release(&self, job: &JobId, which: impl Fn(CheckpointId) -> bool) {
        let mut inner = self.lock();
        let goes: Vec<ReplicaName> = inner
            .images
            .keys()
            .filter(|name| name.job == *job && which(name.checkpoint))
            .cloned()
            .collect();
        goes.iter().for_each(|name| inner.remove(name));
    }

    /// Returns a sealed image.
    pub fn sealed_replica(&self, name: &ReplicaName) -> Option<SealedReplica> {
        self.lock()
            .images
            .get(name)
            .filter(|image| image.sealed)
            .and_then(ReceivedImage::sealed_replica)
    }

    /// Reserves room for data beside images, until it is returned.
    pub(super) fn take_room(&self, wanted: u64) -> Result<(), TransferRefusal> {
        let mut inner = self.lock();
        let room = inner.limit.saturating_sub(inner.bytes);
        if wanted > room {
            return Err(TransferRefusal::Full { wanted, room });
        }
        inner.bytes += wanted;
        Ok(())
    }

    /// Returns reserved room.
    pub(super) fn give_room(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.bytes = inner.bytes.saturating_sub(bytes);
    }

    /// Reserves room for an image; returns the missing pieces.
    pub(super) fn offer(&self, name: &ReplicaName, index: ShardIndex) -> Result<Vec<(u32, u32)>, TransferRefusal> {
        let mut inner = self.lock();
        if let Some(image) = inner.images.get(name) {
            if image.index.root == index.root && *image.index == index {
                return Ok(image.missing());
            }
            if image.sealed {
                return Err(TransferRefusal::Conflict);
            }
            inner.remove(name);
        }
        let wanted = index.image_bytes;
        let room = inner.limit.saturating_sub(inner.bytes);
        if wanted > room {
            return Err(TransferRefusal::Full { wanted, room });
        }
        inner.bytes += wanted;
        let cut = PieceLayout::of(&index);
        let image = ReceivedImage {
            pieces: vec![None; cut.pieces.len()],
            index: Arc::new(index),
            cut: Arc::new(cut),
            sealed: false,
        };
        let missing = image.missing();
        inner.images.insert(name.clone(), image);
        Ok(missing)
    }

    /// Returns the expected length of a piece, and a buffer for it.
    pub(super) fn expect(&self, name: &ReplicaName, piece: u32) -> Result<(usize, Vec<u8>), TransferRefusal> {
        let mut inner = self.lock();
        let image = inner
            .images
            .get(name)
            .filter(|image| !image.sealed)
            .ok_or(TransferRefusal::Unknown)?;
        let bytes = image.cut.piece_bytes(piece).ok_or(TransferRefusal::Unknown)?;
        Ok((bytes, inner.take_spare()))
    }

    /// Stores a piece if every chunk matches the index.
    pub(super) fn put(&self, name: &ReplicaName, piece: u32, bytes: Vec<u8>) -> Result<(), TransferRefusal> {
        let (index, cut) = {
            let inner = self.lock();
            let image = inner
                .images
                .get(name)
                .filter(|image| !image.sealed)
                .ok_or(TransferRefusal::Unknown)?;
            (image.index.clone(), image.cut.clone())
        };
        if let Err(refusal) = cut.check(&index, piece, &bytes) {
            self.lock().keep_spare(bytes);
            return Err(refusal);
        }
        let mut inner = self.lock();
        // The image may have been released and offered again with other content meanwhile.
        let image = inner
            .images
            .get_mut(name)
            .filter(|image| Arc::ptr_eq(&image.index, &index) && !image.sealed);
        let place = image
            .and_then(|image| image.pieces.get_mut(piece as usize))
            .ok_or(TransferRefusal::Unknown)?;
        if let Some(before) = place.replace(Arc::new(bytes)) {
            inner.reuse(before);
        }
        Ok(())
    }

    /// Seals an image if it is complete.
    pub(super) fn seal(&self, name: &ReplicaName) -> Result<SealedReplica, TransferRefusal> {
        let mut inner = self.lock();
        let image = inner.images.get_mut(name).ok_or(TransferRefusal::Unknown)?;
        let missing = image.pieces.iter().filter(|piece| piece.is_none()).count() as u32;
        let held = image.sealed_replica().ok_or(TransferRefusal::Incomplete { missing })?;
        image.sealed = true;
        Ok(held)
    }

    pub(super) fn remove(&self, name: &ReplicaName) {
        self.lock().remove(name);
    }
}

impl ReplicaTable {
    fn remove(&mut self, name: &ReplicaName) {
        let Some(image) = self.images.remove(name) else { return };
        self.bytes = self.bytes.saturating_sub(image.index.image_bytes);
        image.pieces.into_iter().flatten().for_each(|piece| self.reuse(piece));
    }

    fn reuse(&mut self, piece: Arc<Vec<u8>>) {
        if let Ok(bytes) = Arc::try_unwrap(piece) {
            self.keep_spare(bytes);
        }
    }

    fn keep_spare(&mut self, bytes: Vec<u8>) {
        let capacity = bytes.capacity() as u64;
        if self.bytes + self.spare_bytes + capacity <= self.limit {
            self.spare_bytes += capacity;
            self.spare.push(bytes);
        }
    }

    fn take_spare(&mut self) -> Vec<u8> {
        let spare = self.spare.pop().unwrap_or_default();
        self.spare_bytes = self.spare_bytes.saturating_sub(spare.capacity() as u64);
        spare
    }
}

impl ReceivedImage {
    fn missing(&self) -> Vec<(u32, u32)> {
        let missing = (0u32..).zip(&self.pieces).filter(|(_, piece)| piece.is_none());
        runs(missing.map(|(nth, _)| nth))
    }

    fn sealed_replica(&self) -> Option<SealedReplica> {
        let pieces = self.pieces.iter().cloned().collect::<Option<Vec<_>>>()?;
        let index = self.index.clone();
        let cut = self.cut.clone();
        Some(SealedReplica { index, cut, pieces })
    }
}

impl SealedReplica {
    /// Returns the index of the image.
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    /// Returns a chunk, which was checked on arrival.
    pub fn chunk(&self, chunk: u32) -> Option<&[u8]> {
        let (piece, from) = self.cut.place(chunk)?;
        self.pieces.get(piece)?.get(from..from + self.cut.length(chunk))
    }
}

impl ImageSource for SealedReplica {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let end = at
            .checked_add(out.len() as u64)
            .filter(|end| *end <= self.index.image_bytes);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        out.fill(0);
        let first = self.cut.ranges.partition_point(|range| range.end <= at);
        for (chunk, range) in (first as u32..).zip(&self.cut.ranges[first..]) {
            if range.start >= end {
                break;
            }
            let bytes = self.chunk(chunk).ok_or(io::ErrorKind::UnexpectedEof)?;
            let from = range.start.max(at);
            let to = range.end.min(end);
            out[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&bytes[(from - range.start) as usize..(to - range.start) as usize]);
        }
        Ok(())
    }
}

impl ImageHolder for ReplicaMemory {
    fn read(&self, name: &ReplicaName, runs: &[(u32, u32)], max: usize) -> Option<Result<Vec<u8>, String>> {
        let held = self.sealed_replica(name)?;
        let mut bytes = Vec::new();
        for &(first, count) in runs {
            for chunk in first..first.saturating_add(count) {
                let Some(part) = held.chunk(chunk) else {
                    return Some(Err(format!("the image has no chunk {chunk}")));
                };
                if bytes.len() + part.len() > max {
                    return Some(Err(format!("more than {max} bytes in one fetch")));
                }
                bytes.extend_from_slice(part);
            }
        }
        Some(Ok(bytes))
    }
}

/// Replicas held for other nodes are memory of this node, so they count as the arena tier.
impl ChunkSource for ReplicaMemory {
    fn tier(&self) -> SourceTier {
        SourceTier::Arena
    }

    fn name(&self) -> String {
        "replica in memory".to_owned()
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let name = ReplicaName {
            job: id.job.clone(),
            checkpoint: id.checkpoint,
            rank: id.rank,
            what: ReplicaKind::Image,
        };
        Ok(self
            .sealed_replica(&name)
            .and_then(|held| held.chunk(id.chunk).map(ToOwned::to_owned)))
    }
}
