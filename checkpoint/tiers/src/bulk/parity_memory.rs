//! Parity of images of other nodes, in memory.
//!
//! A lane is one rank from each node of a group. The holder of a parity receives the image of every rank, piece by
//! piece, and retains only the sum of their contributions: its memory is that of the longest image, and no two images
//! need to be present at a time. Every chunk is compared with its index before it is added, and no piece is added
//! twice.
//!
//! Absent: removal of a contribution. An image that is interrupted leaves a parity that never becomes whole; it is
//! released with the next commit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_checkpoint::format::{CheckpointId, ChunkDigest, ShardIndex};
use rankguard_model::{JobId, Rank};
use serde::{Deserialize, Serialize};

use super::{ImageHolder, PieceLayout, ReplicaKind, ReplicaMemory, ReplicaName, TransferRefusal, runs};
use crate::parity::{ErasureCode, add};

/// Chunk size in bytes of a parity in a fetch; the last chunk may be shorter.
pub const SUM_CHUNK_BYTES: u32 = 64 << 10;

/// Block size of the code in bytes. Blocks are independent, so ranges between block boundaries can be coded alone.
pub(super) const BLOCK: u64 = 64;

/// Ranks with images under common parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLane {
    /// Ranks in ascending order, which is their position in the code.
    pub ranks: Vec<Rank>,
    /// Number of parities: XOR for one, Reed-Solomon for more.
    pub parities: u32,
}

impl RankLane {
    /// Returns the code over the lane.
    pub(super) fn code(&self) -> Result<ErasureCode, TransferRefusal> {
        let sorted = self.ranks.is_sorted_by(|one, next| one < next);
        let code = ErasureCode::new(self.ranks.len(), self.parities as usize);
        match code {
            Ok(code) if sorted => Ok(code),
            Ok(_) => Err(TransferRefusal::Failed("the ranks of a lane go in order".to_owned())),
            Err(problem) => Err(TransferRefusal::Failed(problem.to_string())),
        }
    }

    fn place(&self, rank: Rank) -> Option<usize> {
        self.ranks.binary_search(&rank).ok()
    }
}

/// Description of a complete parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumView {
    /// Ranks that it covers.
    pub lane: RankLane,
    /// Number of the parity in the code.
    pub nth: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Roots of its images, in order of their position in the code.
    pub roots: Vec<String>,
}

impl SumView {
    /// Returns the name for a fetch of this parity.
    pub fn name(&self, job: &JobId, checkpoint: CheckpointId) -> Option<ReplicaName> {
        Some(ReplicaName {
            job: job.clone(),
            checkpoint,
            rank: *self.lane.ranks.first()?,
            what: ReplicaKind::Sum(self.nth),
        })
    }
}

/// Parities held for other nodes, within the memory limit of a shelf.
#[derive(Debug)]
pub struct ParityMemory {
    shelf: Arc<ReplicaMemory>,
    inner: Mutex<ParityTable>,
}

#[derive(Debug, Default)]
struct ParityTable {
    sums: BTreeMap<ReplicaName, ParitySum>,
    /// Sum for each rank's image, by the name of its share.
    of: BTreeMap<ReplicaName, ReplicaName>,
}

#[derive(Debug)]
struct ParitySum {
    lane: RankLane,
    code: ErasureCode,
    nth: u32,
    bytes: Vec<u8>,
    shares: BTreeMap<Rank, ParityShare>,
}

#[derive(Debug)]
struct ParityShare {
    index: Arc<ShardIndex>,
    /// Missing pieces; `None` once the share is sealed.
    open: Option<OpenShare>,
}

#[derive(Debug, Clone)]
struct OpenShare {
    cut: Arc<PieceLayout>,
    added: Vec<bool>,
}

impl ParityMemory {
    /// Creates a store that takes its room from this shelf.
    pub fn new(shelf: Arc<ReplicaMemory>) -> Self {
        let inner = Mutex::default();
        Self { shelf, inner }
    }

    fn lock(&self) -> MutexGuard<'_, ParityTable> {
        self.inner.lock().expect("no holder of the sums panics")
    }

    /// Reserves room for an image's contribution to the parity `nth` of its lane; returns the missing pieces.
    pub(super) fn offer(
        &self,
        name: &ReplicaName,
        nth: u32,
        lane: &RankLane,
        index: ShardIndex,
    ) -> Result<Vec<(u32, u32)>, TransferRefusal> {
        let code = lane.code()?;
        let first = lane.ranks.first();
        let (Some(first), Some(_), true) = (first, lane.place(name.rank), nth < lane.parities) else {
            return Err(TransferRefusal::NoParity);
        };
        let whole = ReplicaName {
            rank: *first,
            what: ReplicaKind::Sum(nth),
            ..name.clone()
        };
        let mut inner = self.lock();
        let inner = &mut *inner;
        let known = inner.sums.get(&whole);
        if known.is_some_and(|sum| sum.lane != *lane) {
            return Err(TransferRefusal::Conflict);
        }
        if let Some(share) = known.and_then(|sum| sum.shares.get(&name.rank)) {
            return match &share.open {
                _ if *share.index != index => Err(TransferRefusal::Conflict),
                None => Ok(Vec::new()),
                Some(open) => Ok(open.missing()),
            };
        }
        let before = known.map_or(0, |sum| sum.bytes.len() as u64);
        let longest = index.image_bytes.next_multiple_of(BLOCK).max(before);
        self.shelf.take_room(longest - before)?;
        let sum = inner.sums.entry(whole.clone()).or_insert_with(|| ParitySum {
            lane: lane.clone(),
            code,
            nth,
            bytes: Vec::new(),
            shares: BTreeMap::new(),
        });
        sum.bytes.resize(longest as usize, 0);
        let cut = Arc::new(PieceLayout::of(&index));
        let open = OpenShare {
            added: vec![false; cut.pieces.len()],
            cut,
        };
        let missing = open.missing();
        let open = Some(open);
        let index = Arc::new(index);
        sum.shares.insert(name.rank, ParityShare { index, open });
        inner.of.insert(name.clone(), whole);
        Ok(missing)
    }

    /// Returns the expected length of a piece.
    pub(super) fn expect(&self, name: &ReplicaName, piece: u32) -> Result<usize, TransferRefusal> {
        let mut inner = self.lock();
        let (_, open) = inner.open(name).ok_or(TransferRefusal::Unknown)?;
        open.cut.piece_bytes(piece).ok_or(TransferRefusal::Unknown)
    }

    /// Adds a piece of an image if every chunk matches the index; a piece that was added before is ignored.
    pub(super) fn add(&self, name: &ReplicaName, piece: u32, bytes: &[u8]) -> Result<(), TransferRefusal> {
        let (index, cut, code, place, nth) = {
            let mut inner = self.lock();
            let (sum, open) = inner.open(name).ok_or(TransferRefusal::Unknown)?;
            let place = sum.lane.place(name.rank).ok_or(TransferRefusal::Unknown)?;
            (sum.index.clone(), open.cut.clone(), sum.code, place, sum.nth as usize)
        };
        cut.check(&index, piece, bytes)?;
        let (at, laid) = lay_out(&cut, piece, bytes).ok_or(TransferRefusal::Unknown)?;
        let share = code.share(place, nth, &laid);
        let share = share.map_err(|problem| TransferRefusal::Failed(problem.to_string()))?;
        let mut inner = self.lock();
        // The parity may have been released, or the same piece added on another connection, meanwhile.
        let (sum, open) = inner.open(name).ok_or(TransferRefusal::Unknown)?;
        let added = open
            .added
            .get_mut(piece as usize)
            .filter(|_| Arc::ptr_eq(sum.index, &index));
        let added = added.ok_or(TransferRefusal::Unknown)?;
        if !std::mem::replace(added, true) {
            let part = usize::try_from(at)
                .ok()
                .and_then(|at| sum.bytes.get_mut(at..at + share.len()));
            add(part.ok_or(TransferRefusal::Unknown)?, &share);
        }
        Ok(())
    }

    /// Seals the share of an image if it is complete; returns the root of that image.
    pub(super) fn seal(&self, name: &ReplicaName) -> Result<ChunkDigest, TransferRefusal> {
        let mut inner = self.lock();
        let whole = inner.of.get(name).cloned().ok_or(TransferRefusal::Unknown)?;
        let share = inner
            .sums
            .get_mut(&whole)
            .and_then(|sum| sum.shares.get_mut(&name.rank));
        let share = share.ok_or(TransferRefusal::Unknown)?;
        let missing = share.open.iter().flat_map(|open| &open.added);
        match missing.filter(|added| !**added).count() as u32 {
            0 => share.open = None,
            missing => return Err(TransferRefusal::Incomplete { missing }),
        }
        Ok(share.index.root)
    }

    /// Returns the parities of a checkpoint that contain the images of all their ranks.
    pub fn whole(&self, job: &JobId, checkpoint: CheckpointId) -> Vec<SumView> {
        let inner = self.lock();
        let sums = inner.sums.iter().filter(|(name, sum)| {
            let of = (&name.job, name.checkpoint);
            of == (job, checkpoint) && sum.is_whole()
        });
        sums.map(|(_, sum)| sum.view()).collect()
    }

    /// Returns the indexes of all images of each lane with a complete parity here, by checkpoint; each lane once.
    pub fn lanes(&self, job: &JobId, which: impl Fn(CheckpointId) -> bool) -> Vec<Vec<Arc<ShardIndex>>> {
        let inner = self.lock();
        let whole = inner
            .sums
            .iter()
            .filter(|(name, sum)| name.job == *job && which(name.checkpoint) && sum.is_whole());
        let mut lanes: BTreeMap<(CheckpointId, Rank), Vec<Arc<ShardIndex>>> = BTreeMap::new();
        for (name, sum) in whole {
            let indexes = sum.shares.values().map(|share| share.index.clone());
            lanes.insert((name.checkpoint, name.rank), indexes.collect());
        }
        lanes.into_values().collect()
    }

    /// Flips one byte of every parity in memory.
    #[cfg(test)]
    pub(super) fn damage(&self) {
        let mut inner = self.lock();
        inner.sums.values_mut().for_each(|sum| sum.bytes[3] ^= 1);
    }

    /// Releases parities of a job that `which` selects by checkpoint.
    pub fn release(&self, job: &JobId, which: impl Fn(CheckpointId) -> bool) {
        let mut inner = self.lock();
        let goes = |name: &ReplicaName| name.job == *job && which(name.checkpoint);
        let mut bytes = 0;
        inner.of.retain(|name, _| !goes(name));
        inner.sums.retain(|name, sum| {
            let gone = goes(name);
            bytes += if gone { sum.bytes.len() as u64 } else { 0 };
            !gone
        });
        self.shelf.give_room(bytes);
    }
}

impl ParityTable {
    /// Returns the sum of an unsealed share, and its missing pieces.
    fn open(&mut self, share: &ReplicaName) -> Option<(Opened<'_>, &mut OpenShare)> {
        let sum = self.sums.get_mut(self.of.get(share)?)?;
        let ParityShare { index, open } = sum.shares.get_mut(&share.rank)?;
        let opened = Opened {
            lane: &sum.lane,
            code: sum.code,
            nth: sum.nth,
            bytes: &mut sum.bytes,
            index,
        };
        Some((opened, open.as_mut()?))
    }
}

/// View of a sum without its shares.
struct Opened<'a> {
    lane: &'a RankLane,
    code: ErasureCode,
    nth: u32,
    bytes: &'a mut Vec<u8>,
    /// Index of the image.
    index: &'a Arc<ShardIndex>,
}

impl ParitySum {
    fn is_whole(&self) -> bool {
        let sealed = self.shares.values().filter(|share| share.open.is_none());
        sealed.count() == self.lane.ranks.len()
    }

    fn view(&self) -> SumView {
        SumView {
            lane: self.lane.clone(),
            nth: self.nth,
            bytes: self.bytes.len() as u64,
            roots: self.shares.values().map(|share| share.index.root.to_string()).collect(),
        }
    }
}

impl OpenShare {
    fn missing(&self) -> Vec<(u32, u32)> {
        let missing = (0u32..).zip(&self.added).filter(|(_, added)| !**added);
        runs(missing.map(|(nth, _)| nth))
    }
}

/// Places the bytes of a piece as in the image, with zeros in gaps and up to the end of the block; returns the offset
/// and the bytes.
fn lay_out(cut: &PieceLayout, piece: u32, bytes: &[u8]) -> Option<(u64, Vec<u8>)> {
    let ranges = cut.pieces.get(piece as usize).map(|chunks| {
        let chunks = chunks.start as usize..chunks.end as usize;
        cut.ranges.get(chunks)
    })??;
    let at = ranges.first()?.start;
    let end = ranges.last()?.end.next_multiple_of(BLOCK);
    let mut laid = vec![0; usize::try_from(end - at).ok()?];
    let mut from = 0;
    for range in ranges {
        let place = (range.start - at) as usize;
        let length = (range.end - range.start) as usize;
        laid.get_mut(place..place + length)?
            .copy_from_slice(bytes.get(from..from + length)?);
        from += length;
    }
    Some((at, laid))
}

impl ImageHolder for ParityMemory {
    fn read(&self, name: &ReplicaName, runs: &[(u32, u32)], max: usize) -> Option<Result<Vec<u8>, String>> {
        let inner = self.lock();
        let sum = inner.sums.get(name).filter(|sum| sum.is_whole())?;
        let mut all = Vec::new();
        for &(first, count) in runs {
            let chunk = u64::from(SUM_CHUNK_BYTES);
            let (from, end) = (u64::from(first) * chunk, (u64::from(first) + u64::from(count)) * chunk);
            let end = end.min(sum.bytes.len() as u64);
            let Some(part) = sum.bytes.get(from as usize..end as usize) else {
                return Some(Err(format!("the parity has no piece {first}")));
            };
            if all.len() + part.len() > max {
                return Some(Err(format!("more than {max} bytes in one fetch")));
            }
            all.extend_from_slice(part);
        }
        Some(Ok(all))
    }
}

#[cfg(test)]
mod tests;
