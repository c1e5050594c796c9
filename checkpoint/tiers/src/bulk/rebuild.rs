//! Rebuilding of lost image chunks from the other images of the lane and its parity.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rankguard_checkpoint::format::{CheckpointId, ChunkDigest, ChunkLayout, ChunkPlace, ShardIndex};
use rankguard_checkpoint::source::{
    ChunkBytes, ChunkError, ChunkId, ChunkReadResult, ChunkSource, SourceTier, one_of_many,
};
use rankguard_model::{Generation, JobId, Rank};
use tokio::runtime::Handle;

use super::parity_memory::BLOCK;
use super::{BulkPeer, ImageHolder, ParityMemory, RankLane, SUM_CHUNK_BYTES, SumView};

/// Maximum bytes of an image that are rebuilt at a time; each takes its length times the lane size in memory.
const RUN: u64 = 4 << 20;

/// Holder of parities.
#[derive(Debug, Clone)]
pub enum SumHolder {
    Here(Arc<ParityMemory>),
    Peer(Arc<BulkPeer>),
}

/// Source of a restore that rebuilds lost images. Its inputs are compared with their indexes, and its output is
/// compared by the caller (RG-2), so parity need not be trusted. Used from threads that may block, on a runtime that
/// other threads drive.
pub struct RebuildSource<'a> {
    job: JobId,
    checkpoint: CheckpointId,
    images: BTreeMap<Rank, IndexedImage<'a>>,
    /// Sources of the surviving images.
    survivors: Vec<&'a dyn ChunkSource>,
    holders: Vec<SumHolder>,
    /// Generation that restores.
    generation: Generation,
    runtime: Handle,
    /// Result of the parity query, made once at the first missing chunk.
    lanes: OnceLock<Vec<LaneHolders>>,
}

/// Index of one image and the chunk positions from it.
struct IndexedImage<'a> {
    index: &'a ShardIndex,
    chunking: ChunkLayout,
    places: Vec<ChunkPlace>,
}

/// Lane and the holders of its parities.
struct LaneHolders {
    lane: RankLane,
    bytes: u64,
    by: Vec<(SumView, SumHolder)>,
}

impl<'a> RebuildSource<'a> {
    /// Creates a source for the checkpoint of these indexes. Requests to `survivors` for the surviving images, and to
    /// `holders` for parity, carry `generation`.
    pub fn new(
        indexes: &'a [ShardIndex],
        survivors: Vec<&'a dyn ChunkSource>,
        holders: Vec<SumHolder>,
        generation: Generation,
        runtime: Handle,
    ) -> Option<Self> {
        let first = indexes.first()?;
        let image = |index: &'a ShardIndex| IndexedImage {
            index,
            chunking: index.chunking(),
            places: index.places(),
        };
        Some(Self {
            job: first.job.clone(),
            checkpoint: first.id(),
            images: indexes.iter().map(|index| (index.rank, image(index))).collect(),
            survivors,
            holders,
            generation,
            runtime,
            lanes: OnceLock::new(),
        })
    }

    /// Returns the lane that can rebuild a rank's image, if any of its parities is available.
    fn lane(&self, rank: Rank) -> Option<&LaneHolders> {
        let lanes = self.lanes.get_or_init(|| self.find());
        lanes.iter().find(|kept| kept.lane.ranks.contains(&rank))
    }

    /// Queries all holders for parity. Parity over bytes other than the committed ones is ignored.
    fn find(&self) -> Vec<LaneHolders> {
        let mut lanes: Vec<LaneHolders> = Vec::new();
        for holder in &self.holders {
            for view in self
                .query_holder(holder)
                .into_iter()
                .filter(|view| self.is_of_these(view))
            {
                let same = lanes
                    .iter_mut()
                    .find(|kept| (&kept.lane, kept.bytes) == (&view.lane, view.bytes));
                match same {
                    Some(kept) => kept.by.push((view, holder.clone())),
                    None => lanes.push(LaneHolders {
                        lane: view.lane.clone(),
                        bytes: view.bytes,
                        by: vec![(view, holder.clone())],
                    }),
                }
            }
        }
        lanes
    }

    fn query_holder(&self, holder: &SumHolder) -> Vec<SumView> {
        match holder {
            SumHolder::Here(sums) => sums.whole(&self.job, self.checkpoint),
            // An unreachable peer, or one without parity, counts as holding none.
            SumHolder::Peer(peer) => {
                let asked = peer.sums(&self.job, self.checkpoint, self.generation);
                self.runtime.block_on(asked).unwrap_or_default()
            }
        }
    }

    fn is_of_these(&self, view: &SumView) -> bool {
        let images = view.lane.ranks.iter().map(|rank| self.images.get(rank));
        let mut longest = 0;
        let same = images.zip(&view.roots).all(|(image, root)| {
            image.is_some_and(|image| {
                longest = longest.max(image.index.image_bytes.next_multiple_of(BLOCK));
                image.index.root.to_string() == *root
            })
        });
        let sound = view.lane.code().is_ok() && view.nth < view.lane.parities;
        same && sound && view.roots.len() == view.lane.ranks.len() && longest == view.bytes
    }

    /// Rebuilds a complete image.
    pub fn image(&self, rank: Rank) -> Result<Vec<u8>, ChunkError> {
        let image = self.images.get(&rank).ok_or("its index is not known")?;
        let ids: Vec<ChunkId> = (0u32..)
            .zip(image.chunking.ranges())
            .map(|(chunk, range)| image.id(chunk, range.start))
            .collect();
        let mut out = vec![0; usize::try_from(image.index.image_bytes)?];
        let mut missing = None;
        self.chunks(&ids.iter().collect::<Vec<_>>(), &mut |nth, answer| {
            let bytes = match answer {
                Ok(bytes) => bytes.and_then(|bytes| ids[nth].private_copy(bytes)),
                Err(problem) => {
                    missing.get_or_insert(problem);
                    return;
                }
            };
            match bytes {
                Some(bytes) => out[ids[nth].at as usize..][..bytes.len()].copy_from_slice(&bytes),
                None => {
                    missing.get_or_insert_with(|| format!("chunk {nth} does not come back as it was").into());
                }
            }
        });
        missing.map_or(Ok(out), Err)
    }

    /// Rebuilds bytes of the image of `rank`, between block boundaries. If there are more parities than lost images,
    /// one that yields bytes that are not `sound` is replaced by another; if none is sound, the caller refuses the
    /// bytes.
    fn rebuild(
        &self,
        kept: &LaneHolders,
        rank: Rank,
        range: &Range<u64>,
        sound: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, ChunkError> {
        let ranks = &kept.lane.ranks;
        let whole = |other: &Rank| (*other != rank).then(|| self.survivor(*other, range)).flatten();
        let pieces: Vec<Option<Vec<u8>>> = ranks.iter().map(whole).collect();
        let lost = pieces.iter().filter(|piece| piece.is_none()).count();
        let place = ranks
            .iter()
            .position(|other| *other == rank)
            .ok_or("it is not of this lane")?;
        let code = kept.lane.code().map_err(|problem| problem.to_string())?;
        let mut read: Vec<Option<Option<Vec<u8>>>> = vec![None; kept.by.len()];
        let mut rebuilt = None;
        for first in 0..kept.by.len() {
            let mut parity: Vec<Option<Vec<u8>>> = vec![None; kept.lane.parities as usize];
            let mut left = 0;
            for nth in (first..kept.by.len()).chain(0..first) {
                let (view, holder) = &kept.by[nth];
                let at = &mut parity[view.nth as usize];
                if left < lost && at.is_none() {
                    *at = read[nth]
                        .get_or_insert_with(|| self.parity(view, holder, range))
                        .clone();
                    left += usize::from(at.is_some());
                }
            }
            let mut pieces = pieces.clone();
            if code.restore(&mut pieces, &parity).is_err() {
                break;
            }
            let bytes = pieces.swap_remove(place).unwrap_or_default();
            if sound(&bytes) {
                return Ok(bytes);
            }
            rebuilt = Some(bytes);
        }
        rebuilt.ok_or_else(|| {
            let names = ranks.iter().zip(&pieces).filter(|(_, piece)| piece.is_none());
            let names: Vec<String> = names.map(|(rank, _)| rank.to_string()).collect();
            let sums = read.iter().flatten().flatten().count();
            format!(
                "the images of ranks {} are lost, and {sums} parities are there",
                names.join(", ")
            )
            .into()
        })
    }

    /// Reads the same range of a surviving image, padded with zeros; `None` if a part cannot be read as committed.
    fn survivor(&self, rank: Rank, range: &Range<u64>) -> Option<Vec<u8>> {
        let image = self.images.get(&rank)?;
        let first = image.chunking.chunk_holding(range.start);
        let chunks = (first..image.chunking.count()).map_while(|chunk| {
            let at = image.chunking.range(chunk)?;
            (at.start < range.end).then_some((chunk, at.start))
        });
        let mut open: Vec<ChunkId> = chunks.map(|(chunk, at)| image.id(chunk, at)).collect();
        let mut out = vec![0; (range.end - range.start) as usize];
        for source in &self.survivors {
            if open.is_empty() {
                break;
            }
            let mut good = vec![false; open.len()];
            let ids: Vec<&ChunkId> = open.iter().collect();
            source.chunks(&ids, &mut |nth, answer| {
                let Some(id) = ids.get(nth).copied() else { return };
                if let Ok(Some(bytes)) = answer
                    && let Some(chunk) = id.private_copy(bytes)
                {
                    put(&mut out, range, id.at, &chunk);
                    good[nth] = true;
                }
            });
            let mut good = good.into_iter();
            open.retain(|_| good.next() != Some(true));
        }
        open.is_empty().then_some(out)
    }

    /// Reads the same range of a parity.
    fn parity(&self, view: &SumView, holder: &SumHolder, range: &Range<u64>) -> Option<Vec<u8>> {
        let chunk = u64::from(SUM_CHUNK_BYTES);
        let first = range.start / chunk;
        let end = range.end.div_ceil(chunk);
        let runs = vec![(u32::try_from(first).ok()?, u32::try_from(end - first).ok()?)];
        let name = view.name(&self.job, self.checkpoint)?;
        let bytes = match holder {
            SumHolder::Here(sums) => sums.read(&name, &runs, usize::MAX)?.ok()?,
            SumHolder::Peer(peer) => {
                let fetched = self.runtime.block_on(peer.fetch(&name, self.generation, runs));
                fetched.ok()??
            }
        };
        let from = (range.start - first * chunk) as usize;
        let part = bytes.get(from..from + (range.end - range.start) as usize)?;
        Some(part.to_vec())
    }
}

impl IndexedImage<'_> {
    fn id(&self, chunk: u32, at: u64) -> ChunkId {
        ChunkId {
            job: self.index.job.clone(),
            checkpoint: self.index.id(),
            rank: self.index.rank,
            chunk,
            at,
            place: self.places[chunk as usize],
            digest: self.index.chunks[chunk as usize],
        }
    }
}

/// Copies the part of a chunk in `range` to `out`, which starts at `range.start`.
fn put(out: &mut [u8], range: &Range<u64>, at: u64, chunk: &[u8]) {
    let from = at.max(range.start);
    let end = (at + chunk.len() as u64).min(range.end);
    if from < end {
        let to = (from - range.start) as usize..(end - range.start) as usize;
        out[to].copy_from_slice(&chunk[(from - at) as usize..(end - at) as usize]);
    }
}

/// Groups chunks of one image that are rebuilt together: their positions in the request, in order, and the byte range
/// from the first to the last.
fn stretches(ids: &[&ChunkId]) -> Vec<(Vec<usize>, Range<u64>)> {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|&nth| (ids[nth].rank, ids[nth].at));
    let mut stretches: Vec<(Vec<usize>, Range<u64>)> = Vec::new();
    for nth in order {
        let (at, end) = (ids[nth].at, ids[nth].at + u64::from(ids[nth].bytes()));
        match stretches.last_mut() {
            Some((places, range))
                if ids[places[0]].rank == ids[nth].rank && end - range.start <= RUN && at <= range.end + RUN / 64 =>
            {
                places.push(nth);
                range.end = range.end.max(end);
            }
            _ => stretches.push((vec![nth], at / BLOCK * BLOCK..end)),
        }
    }
    stretches
}

impl ChunkSource for RebuildSource<'_> {
    fn tier(&self) -> SourceTier {
        SourceTier::Peer
    }

    fn name(&self) -> String {
        "parity".to_owned()
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        one_of_many(self, id)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        for (places, range) in stretches(ids) {
            let first = ids[places[0]];
            let known = (&first.job, first.checkpoint) == (&self.job, self.checkpoint);
            let Some(kept) = self.lane(first.rank).filter(|_| known) else {
                places.iter().for_each(|nth| answer(*nth, Ok(None)));
                continue;
            };
            let range = range.start..range.end.next_multiple_of(BLOCK).min(kept.bytes);
            let part = |nth: usize| {
                let from = (ids[nth].at - range.start) as usize;
                from..from + ids[nth].bytes() as usize
            };
            let sound = |bytes: &[u8]| {
                let right = |nth: &usize| bytes.get(part(*nth)).map(ChunkDigest::of) == Some(ids[*nth].digest);
                places.iter().all(right)
            };
            let rebuilt = self.rebuild(kept, first.rank, &range, &sound);
            let rebuilt = rebuilt.map_err(|problem| problem.to_string());
            for nth in places.iter().copied() {
                match rebuilt.as_ref().map(|bytes| bytes.get(part(nth))) {
                    Ok(Some(part)) => answer(nth, Ok(Some(ChunkBytes::Private(part)))),
                    Ok(None) => answer(nth, Err("the parity is too short".into())),
                    Err(problem) => answer(nth, Err(problem.clone().into())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
