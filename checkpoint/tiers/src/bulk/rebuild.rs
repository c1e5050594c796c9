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

/// Longest range of an image that is rebuilt at a time, bytes, unless a single chunk is longer. A rebuild holds the
/// range of every image of the lane in memory.
const RUN: u64 = 4 << 20;

/// Holder of complete parities.
#[derive(Debug, Clone)]
pub enum SumHolder {
    /// Memory of this agent.
    Here(Arc<ParityMemory>),
    /// Another agent, which is queried over the bulk protocol.
    Peer(Arc<BulkPeer>),
}

/// Source of a restore that rebuilds lost images from parity. Its inputs are compared with their indexes, and its
/// output is compared by the caller (RG-2), so parity need not be trusted. Calls block while `runtime` queries peers,
/// so they must come from a thread that may block, and other threads must drive the runtime.
pub struct RebuildSource<'a> {
    job: JobId,
    checkpoint: CheckpointId,
    /// All images of the checkpoint, by rank.
    images: BTreeMap<Rank, IndexedImage<'a>>,
    /// Sources of the surviving images, in the order in which they are tried.
    survivors: Vec<&'a dyn ChunkSource>,
    holders: Vec<SumHolder>,
    /// Generation that restores: the fencing token of requests to `holders`.
    generation: Generation,
    runtime: Handle,
    /// Lanes with an available parity. The holders are queried once, at the first request.
    lanes: OnceLock<Vec<LaneHolders>>,
}

/// Index of one image, with the layout and the storage locations of its chunks.
struct IndexedImage<'a> {
    index: &'a ShardIndex,
    chunking: ChunkLayout,
    places: Vec<ChunkPlace>,
}

/// Lane with its available parities.
struct LaneHolders {
    lane: RankLane,
    /// Length of each parity, bytes.
    bytes: u64,
    /// Available parities and their holders.
    by: Vec<(SumView, SumHolder)>,
}

impl<'a> RebuildSource<'a> {
    /// Creates a source for the checkpoint of `indexes`, all of one checkpoint; `None` if there are none. Surviving
    /// images are read from `survivors`. Parity is requested from `holders`; those requests carry `generation` and run
    /// on `runtime`.
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

    /// Returns the lane of a rank's image; `None` if none of its parities is available.
    fn lane(&self, rank: Rank) -> Option<&LaneHolders> {
        let lanes = self.lanes.get_or_init(|| self.find());
        lanes.iter().find(|kept| kept.lane.ranks.contains(&rank))
    }

    /// Queries all holders for parity and groups it by lane. Parity over other bytes than the committed ones is
    /// ignored.
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

    /// Returns the complete parities of this checkpoint at one holder.
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

    /// Returns true if a parity covers images with the roots in these indexes, and its length and code fit them.
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

    /// Rebuilds a complete image. Fails if a chunk cannot be rebuilt, or does not match its digest.
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

    /// Rebuilds a range of the image of `rank`, between block boundaries. If more parities are available than images
    /// are lost, further combinations are tried until `sound` accepts the bytes. If it accepts none, the bytes of the
    /// last combination are returned, and the caller of the source refuses them. Fails if fewer parities are available
    /// than images are lost.
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

    /// Reads a range of a surviving image; bytes beyond its end are zeros. `None` if no source supplies all chunks of
    /// the range with their committed digests.
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

    /// Reads a range of a parity; `None` if its holder does not supply it.
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

/// Groups chunks of one image that lie near each other, so that each group is rebuilt at once. Returns, for each group,
/// the positions of its chunks in `ids`, in the order of the image, and its byte range, which begins at a block
/// boundary.
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
