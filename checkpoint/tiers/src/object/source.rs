//! Restore source that reads chunks from an object store, several in one request.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use rankguard_checkpoint::ReadFailure;
use rankguard_checkpoint::failure::SourceFailure;
use rankguard_checkpoint::format::{CheckpointId, ChunkOrigin, MAX_INDEX_BYTES, MAX_MANIFEST_BYTES};
use rankguard_checkpoint::repair::MirrorSource;
use rankguard_checkpoint::source::{
    ChunkBytes, ChunkError, ChunkId, ChunkReadResult, ChunkSource, SourceTier, one_of_many,
};
use rankguard_model::{JobId, Rank, with_causes};
use tokio::runtime::Handle;

use super::{ObjectError, ObjectLocation, ObjectTier};

/// Maximum gap in bytes between chunks that are read together: a request costs more than these bytes.
const GAP_BYTES: u64 = 256 << 10;

/// Object store as a source of a restore. Used from threads that may block, on a runtime that other threads drive.
#[derive(Debug)]
pub struct ObjectSource {
    tier: ObjectTier,
    runtime: Handle,
    /// Set after the first request that fails despite the client's retries; later requests of this restore skip the
    /// store (RG-9).
    given_up: AtomicBool,
}

/// Chunks that are read in one request, by their positions in the request list.
#[derive(Debug, PartialEq, Eq)]
struct RangeRead {
    file: ChunkOrigin,
    range: Range<u64>,
    nths: Vec<usize>,
}

impl ObjectSource {
    /// Creates a source that reads from `tier` on `runtime`.
    pub fn new(tier: ObjectTier, runtime: Handle) -> Self {
        let given_up = AtomicBool::new(false);
        Self {
            tier,
            runtime,
            given_up,
        }
    }

    fn small(&self, place: &ObjectLocation, max: usize) -> Result<Option<Vec<u8>>, ChunkError> {
        match self.runtime.block_on(self.tier.read_small(place, max)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ObjectError::Missing { .. }) => Ok(None),
            Err(problem) => Err(problem.into()),
        }
    }

    /// Reads a run; `None` if the store has been given up.
    async fn read(&self, ids: &[&ChunkId], run: &RangeRead) -> Result<Option<Bytes>, ObjectError> {
        if self.given_up.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let place = self.tier.shard_place(&ids[run.nths[0]].job, run.file)?;
        let read = self.tier.read_range(&place, run.range.clone()).await;
        if matches!(&read, Err(problem) if problem.is_retryable()) {
            self.given_up.store(true, Ordering::Relaxed);
        }
        read.map(Some)
    }
}

fn failure(problem: &ObjectError) -> SourceFailure {
    SourceFailure {
        failure: problem.failure(),
        text: with_causes(problem),
    }
}

fn not_asked() -> SourceFailure {
    SourceFailure {
        failure: ReadFailure::Unavailable,
        text: "was not asked again after it had failed".to_owned(),
    }
}

/// Groups neighbouring chunks of one job and file into requests of at most `longest` bytes (or one chunk).
fn runs(ids: &[&ChunkId], gap: u64, longest: u64) -> Vec<RangeRead> {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|&nth| (&ids[nth].job, ids[nth].place.file, ids[nth].place.at));
    let mut runs: Vec<RangeRead> = Vec::new();
    for nth in order {
        let place = ids[nth].place;
        let end = place.at.saturating_add(u64::from(place.bytes));
        let near = runs.last_mut().filter(|run| {
            let same = run.file == place.file && ids[run.nths[0]].job == ids[nth].job;
            same && place.at <= run.range.end.saturating_add(gap) && end - run.range.start <= longest
        });
        match near {
            Some(run) => {
                run.range.end = run.range.end.max(end);
                run.nths.push(nth);
            }
            None => runs.push(RangeRead {
                file: place.file,
                range: place.at..end,
                nths: vec![nth],
            }),
        }
    }
    runs
}

impl ChunkSource for ObjectSource {
    fn tier(&self) -> SourceTier {
        SourceTier::Disk
    }

    fn name(&self) -> String {
        format!("object store {}", self.tier.url())
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        one_of_many(self, id)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        let runs = runs(ids, GAP_BYTES, self.tier.limits.part_bytes);
        self.runtime.block_on(async {
            let reads = stream::iter(&runs).map(|run| async move { (run, self.read(ids, run).await) });
            let mut reads = reads.buffer_unordered(self.tier.requests());
            while let Some((run, read)) = reads.next().await {
                for &nth in &run.nths {
                    let place = ids[nth].place;
                    match &read {
                        Ok(Some(bytes)) => {
                            let from = (place.at - run.range.start) as usize;
                            let part = &bytes[from..from + place.bytes as usize];
                            answer(nth, Ok(Some(ChunkBytes::Private(part))));
                        }
                        Err(ObjectError::Missing { .. }) => answer(nth, Ok(None)),
                        // The store may hold a good copy: no answer at all would make damage elsewhere look final.
                        Ok(None) => answer(nth, Err(not_asked().into())),
                        Err(problem) => answer(nth, Err(failure(problem).into())),
                    }
                }
            }
        });
    }
}

/// Copies for the repair of a store on disk. Called by threads that may block.
impl MirrorSource for ObjectSource {
    fn committed(&self, job: &JobId) -> Result<Vec<CheckpointId>, ChunkError> {
        Ok(self.runtime.block_on(self.tier.committed(job))?)
    }

    fn manifest_bytes(&self, job: &JobId, id: CheckpointId) -> Result<Option<Vec<u8>>, ChunkError> {
        let place = self.tier.manifest_place(job, id)?;
        self.small(&place, MAX_MANIFEST_BYTES)
    }

    fn index_bytes(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Option<Vec<u8>>, ChunkError> {
        let place = self.tier.index_place(job, id, rank)?;
        self.small(&place, MAX_INDEX_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_checkpoint::format::{CheckpointId, ChunkDigest, ChunkPlace};
    use rankguard_model::{Generation, JobId, Rank, Step};

    use super::*;

    fn id(rank: u32, at: u64, bytes: u32) -> ChunkId {
        let checkpoint = CheckpointId {
            step: Step(1),
            generation: Generation(1),
        };
        let file = ChunkOrigin::new(checkpoint, Rank(rank));
        ChunkId {
            job: JobId::from("demo"),
            checkpoint,
            rank: Rank(rank),
            chunk: 0,
            at,
            place: ChunkPlace { file, at, bytes },
            digest: ChunkDigest::default(),
        }
    }

    #[test]
    fn neighbours_are_read_together_and_far_ones_are_not() {
        let ids = [id(0, 0, 10), id(0, 15, 5), id(0, 200, 10), id(1, 25, 5)];
        let found = runs(&ids.each_ref(), 20, 1000);
        let ranges: Vec<_> = found.iter().map(|run| (run.file.rank.0, run.range.clone())).collect();
        assert_eq!(ranges, [(0, 0..20), (0, 200..210), (1, 25..30)]);
    }

    proptest! {
        /// Every chunk is in one run, runs respect the limit, and no more than the gaps is read in addition.
        #[test]
        fn every_chunk_is_read_once(
            places in proptest::collection::vec((0u32..3, 0u64..5_000, 1u32..300), 1..40),
            gap in 0u64..200,
            longest in 300u64..3_000,
        ) {
            let ids: Vec<ChunkId> = places.iter().map(|&(rank, at, bytes)| id(rank, at, bytes)).collect();
            let refs: Vec<&ChunkId> = ids.iter().collect();
            let found = runs(&refs, gap, longest);
            let mut seen: Vec<usize> = found.iter().flat_map(|run| run.nths.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..ids.len()).collect::<Vec<_>>());
            for run in &found {
                prop_assert!(run.range.end - run.range.start <= longest);
                for &nth in &run.nths {
                    let place = ids[nth].place;
                    prop_assert_eq!(place.file, run.file);
                    prop_assert!(run.range.start <= place.at && place.at + u64::from(place.bytes) <= run.range.end);
                }
            }
        }
    }
}
