//! Rank side of a save: one pass that copies and digests, on several threads for large images.

use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, Rank, Step};
use serde_json::Value;

use crate::arena::protocol;
use crate::arena::state::{self, MAX_GENERATION, SlotState};
use crate::arena::{Arena, ArenaError, FillError};
use crate::format::{
    CheckpointId, ChunkDigest, ChunkLayout, MAX_STATE_BYTES, SampleRange, ShardIndex, ShardLayoutError, TENSOR_ALIGN,
    TensorBox, chunk_bytes_for,
};

/// Images up to this size are copied by the calling thread alone: starting a thread costs as much as copying a
/// megabyte.
const ONE_THREAD_BYTES: u64 = 8 << 20;

/// Unit of work of a copying thread, bytes.
pub(super) const JOB_BYTES: u64 = 1 << 20;

/// Maximum number of copying threads by default; more do not copy faster on any measured memory.
const MAX_THREADS: usize = 8;

/// Identity and options of an image to save.
#[derive(Debug, Clone, Copy)]
pub struct SaveRequest<'a> {
    pub job: &'a JobId,
    /// Number of completed steps.
    pub step: Step,
    pub generation: Generation,
    pub rank: Rank,
    /// Number of ranks in the generation.
    pub world_size: u32,
    /// Chunk size, bytes; 0 selects a size by image size ([`chunk_bytes_for`]).
    pub chunk_bytes: u32,
    /// Copy number of each tensor part; missing entries are primary copies.
    pub replicas: &'a [u32],
    /// Interval of the sample stream that the state covers.
    pub ledger: Option<SampleRange>,
    /// Name of the format of the state, with a version; may be empty.
    pub schema: &'a str,
    /// Maximum number of copying threads, including the caller; 0 for the number of cores, up to eight.
    pub threads: usize,
    /// True if a sealed image that is not being written may be overwritten.
    pub replace: bool,
}

impl<'a> SaveRequest<'a> {
    /// Creates the defaults: primary copies, automatic chunk size, all cores up to eight, no replacement.
    pub fn new(job: &'a JobId, step: Step, generation: Generation, rank: Rank, world_size: u32) -> Self {
        Self {
            job,
            step,
            generation,
            rank,
            world_size,
            chunk_bytes: 0,
            replicas: &[],
            ledger: None,
            schema: "",
            threads: 0,
            replace: false,
        }
    }
}

/// Result of a sealed save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveResult {
    /// Slot that holds the image.
    pub slot: u32,
    /// Image size, bytes.
    pub bytes: u64,
    /// Time from the call to the seal.
    pub took: Duration,
    /// Part of that time in which a window was full.
    pub waited: Duration,
}

impl Arena {
    /// Copies `tensors`, in sequence, and `state` into a slot that is empty or has a durable image, and seals it. After
    /// it returns, the trainer may change its tensors; the agent can read the image even if the rank dies.
    pub fn fill(
        &self,
        slot: u32,
        of: &SaveRequest<'_>,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<SaveResult, FillError> {
        let start = Instant::now();
        let mut index = describe(of, tensors, state)?;
        let bytes = index.image_bytes;
        if self.geometry.is_windowed() {
            return Err(ArenaError::NotHeld { slot }.into());
        }
        if bytes > self.geometry.image_bytes {
            let capacity = self.geometry.image_bytes;
            return Err(FillError::Image { bytes, capacity });
        }
        self.unfenced(of.generation)?;
        let word = self.word(slot)?;
        protocol::claim_over(word, of.generation, of.replace).map_err(|is| ArenaError::State {
            slot,
            is: state::unpack(is).0,
            wanted: SlotState::Empty,
        })?;
        let written = self
            .write_image(slot, &mut index, tensors, of.threads)
            .and_then(|()| self.unfenced(of.generation));
        if let Err(error) = written {
            protocol::give_up(word, of.generation);
            return Err(error);
        }
        if !protocol::seal(word, of.generation) {
            return Err(FillError::TakenBack { slot });
        }
        Ok(SaveResult {
            slot,
            bytes,
            took: start.elapsed(),
            waited: Duration::ZERO,
        })
    }

    pub(super) fn unfenced(&self, generation: Generation) -> Result<(), FillError> {
        let fence = self.fence();
        if generation < fence || generation.0 > MAX_GENERATION {
            return Err(FillError::Fenced { generation, fence });
        }
        Ok(())
    }

    fn write_image(
        &self,
        slot: u32,
        index: &mut ShardIndex,
        tensors: &[(TensorBox, &[u8])],
        threads: usize,
    ) -> Result<(), FillError> {
        let base = self.geometry.image_place(slot, 0, index.image_bytes)? as usize;
        let chunking = index.chunking();
        // The buffer exists from the check of the description; every digest is written to its final position.
        let mut chunks = std::mem::take(&mut index.chunks);
        let jobs = jobs(&chunking, &mut chunks, JOB_BYTES);
        let threads = threads_for(threads, index.image_bytes, jobs.len());
        let jobs = Mutex::new(jobs.into_iter());
        let index_then = &*index;
        let next = || jobs.lock().expect("no holder of the jobs panics").next();
        let work = || {
            while let Some((first, digests)) = next() {
                for (chunk, digest) in (first..).zip(digests) {
                    *digest = self.copy_chunk(base, index_then, &chunking, tensors, chunk);
                }
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            work();
            for other in others {
                other.join().expect("copying does not panic: all places are checked");
            }
        });
        self.zero_gaps(base, index);
        index.set_chunks(chunks);
        self.write_meta(slot, index)
    }

    /// Copies one chunk and returns its digest.
    fn copy_chunk(
        &self,
        base: usize,
        index: &ShardIndex,
        chunking: &ChunkLayout,
        tensors: &[(TensorBox, &[u8])],
        chunk: u32,
    ) -> ChunkDigest {
        let range = chunking.range(chunk);
        let place = chunking.tensor_of(chunk);
        let (range, place) = range.zip(place).expect("jobs are made of the image's chunks");
        let at = index.tensors[place].at;
        let part = &tensors[place].1[(range.start - at) as usize..(range.end - at) as usize];
        self.mapping.copy_in(base + range.start as usize, part)
    }

    /// Zeroes the padding between tensors, which may hold bytes of an earlier image.
    fn zero_gaps(&self, base: usize, index: &ShardIndex) {
        for entry in &index.tensors {
            let end = entry.at + entry.boxed.bytes().unwrap_or(0);
            let next = end.next_multiple_of(TENSOR_ALIGN).min(index.image_bytes);
            if next > end {
                self.mapping.zero(base + end as usize, (next - end) as usize);
            }
        }
    }

    /// Writes the description directly to its area with system calls, which fail if memory is short: only the usual
    /// part of the area is allocated in advance.
    pub(super) fn write_meta(&self, slot: u32, index: &ShardIndex) -> Result<(), FillError> {
        let place = self.geometry.meta_place(slot, 0)?;
        let capacity = self.geometry.meta_bytes;
        let put = |at: usize, part: &[u8]| {
            if (at + part.len()) as u64 > capacity {
                // Dropped: the error reports the full length, known only at the end.
                return Ok(());
            }
            self.file.write_all_at(part, place + at as u64)
        };
        let written = index.write_with(put);
        let bytes = written.map_err(|source| ArenaError::Memory {
            bytes: capacity,
            source,
        })? as u64;
        if bytes > capacity {
            return Err(FillError::Meta { bytes, capacity });
        }
        self.meta_word(slot)?.store(bytes, Ordering::Release);
        Ok(())
    }
}

/// Describes the image, without digests.
pub(super) fn describe(
    of: &SaveRequest<'_>,
    tensors: &[(TensorBox, &[u8])],
    state: &Value,
) -> Result<ShardIndex, FillError> {
    for (boxed, data) in tensors {
        boxed.check()?;
        let has = data.len() as u64;
        let needs = boxed.bytes().unwrap_or(u64::MAX);
        if has != needs {
            let tensor = boxed.name.clone();
            return Err(FillError::Data { tensor, has, needs });
        }
    }
    let state_bytes = state.to_string().len();
    if state_bytes > MAX_STATE_BYTES {
        return Err(ShardLayoutError::State { bytes: state_bytes }.into());
    }
    let (mut entries, end) = ShardIndex::lay_out(tensors.iter().map(|(boxed, _)| boxed.clone()));
    for (entry, replica) in entries.iter_mut().zip(of.replicas) {
        entry.replica = *replica;
    }
    let image_bytes = end.unwrap_or(u64::MAX);
    let chunk_bytes = match of.chunk_bytes {
        0 => chunk_bytes_for(image_bytes),
        given => given,
    };
    let chunking = ChunkLayout::new(&entries, chunk_bytes).ok_or(ShardLayoutError::Chunking {
        image_bytes,
        chunk_bytes,
    })?;
    let id = CheckpointId {
        step: of.step,
        generation: of.generation,
    };
    let mut index = ShardIndex {
        rank: of.rank,
        world_size: of.world_size,
        chunk_bytes,
        image_bytes,
        tensors: entries,
        ledger: of.ledger,
        schema: of.schema.to_owned(),
        state: state.clone(),
        ..ShardIndex::new(of.job, id)
    };
    // Validate everything before the first byte is copied.
    index.set_chunks(vec![ChunkDigest::default(); chunking.count() as usize]);
    index.check()?;
    Ok(index)
}

/// Chunks that one thread takes at a time: number of the first, and destination of the digests.
pub(super) type ChunkBatch<'a> = (u32, &'a mut [ChunkDigest]);

/// Divides the chunks into parts of about `job_bytes`; a thread that is delayed takes fewer parts.
pub(super) fn jobs<'a>(
    chunking: &ChunkLayout,
    mut digests: &'a mut [ChunkDigest],
    job_bytes: u64,
) -> Vec<ChunkBatch<'a>> {
    let mut jobs = Vec::new();
    let mut from = 0;
    let mut first = 0;
    for (chunk, range) in (0u32..).zip(chunking.ranges()) {
        // Padding is included: for tensors of one byte it is nearly all of the image.
        if range.end - from >= job_bytes {
            let (share, rest) = digests.split_at_mut((chunk + 1 - first) as usize);
            jobs.push((first, share));
            (digests, from, first) = (rest, range.end, chunk + 1);
        }
    }
    if !digests.is_empty() {
        jobs.push((first, digests));
    }
    jobs
}

pub(super) fn threads_for(wanted: usize, image_bytes: u64, jobs: usize) -> usize {
    if image_bytes <= ONE_THREAD_BYTES {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let most = if wanted == 0 { cores.min(MAX_THREADS) } else { wanted };
    most.min(jobs).max(1)
}
