//! The rank's side: one pass that copies and digests, on several threads when the image is large.

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
    CheckpointId, ChunkDigest, Chunking, Ledger, MAX_STATE_BYTES, ShardIndex, ShardLayoutError, TENSOR_ALIGN,
    TensorBox, chunk_bytes_for,
};

/// Images up to this size are copied by the calling thread: starting another costs as much as copying a megabyte.
const ONE_THREAD_BYTES: u64 = 8 << 20;

/// What a thread takes at a time.
pub(super) const JOB_BYTES: u64 = 1 << 20;

/// More copying threads than this do not copy faster on any memory we know.
const MAX_THREADS: usize = 8;

/// Whose image it is.
#[derive(Debug, Clone, Copy)]
pub struct ImageOf<'a> {
    /// The job.
    pub job: &'a JobId,
    /// Steps completed.
    pub step: Step,
    /// The rank's generation.
    pub generation: Generation,
    /// The rank.
    pub rank: Rank,
    /// Ranks in its generation.
    pub world_size: u32,
    /// Size of a chunk; 0 for what suits the image ([`chunk_bytes_for`]).
    pub chunk_bytes: u32,
    /// For each tensor, which copy of the part it is; where this is shorter than the tensors, primary copies.
    pub replicas: &'a [u32],
    /// The part of the stream of samples that is in the state.
    pub ledger: Option<Ledger>,
    /// What the small state is: a name with a version; may be empty.
    pub schema: &'a str,
    /// Most threads that copy, the caller's among them; 0 for as many as there are cores, up to eight.
    pub threads: usize,
    /// Whether an image that nobody has begun to write may be filled over.
    pub replace: bool,
}

impl<'a> ImageOf<'a> {
    /// With what suits most: primary copies, chunks of the usual size, all cores.
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

/// An image that was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// The slot it is in.
    pub slot: u32,
    /// Its size.
    pub bytes: u64,
    /// How long it took, from the call to the seal.
    pub took: Duration,
    /// How long of that a window was full.
    pub waited: Duration,
}

impl Arena {
    /// Copies `tensors`, one after the other in the order given, and `state` into a slot that is empty or whose image is durable,
    /// and seals it. When this returns, the trainer may change its tensors; the agent can read the image even if the rank dies.
    pub fn fill(
        &self,
        slot: u32,
        of: &ImageOf<'_>,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<Filled, FillError> {
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
        Ok(Filled {
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
        // Made for the description's check already; every digest is put where it belongs.
        let mut chunks = std::mem::take(&mut index.chunks);
        let jobs = jobs(&chunking, &mut chunks, JOB_BYTES);
        let threads = threads_for(threads, index.image_bytes, jobs.len());
        let (jobs, index_then) = (Mutex::new(jobs.into_iter()), &*index);
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

    /// Copies one chunk; gives its digest.
    fn copy_chunk(
        &self,
        base: usize,
        index: &ShardIndex,
        chunking: &Chunking,
        tensors: &[(TensorBox, &[u8])],
        chunk: u32,
    ) -> ChunkDigest {
        let (range, place) = (chunking.range(chunk), chunking.tensor_of(chunk));
        let (range, place) = range.zip(place).expect("jobs are made of the image's chunks");
        let at = index.tensors[place].at;
        let part = &tensors[place].1[(range.start - at) as usize..(range.end - at) as usize];
        self.mapping.copy_in(base + range.start as usize, part)
    }

    /// What lies between tensors is zero, whatever an earlier image has left there.
    fn zero_gaps(&self, base: usize, index: &ShardIndex) {
        for entry in &index.tensors {
            let end = entry.at + entry.boxed.bytes().unwrap_or(0);
            let next = end.next_multiple_of(TENSOR_ALIGN).min(index.image_bytes);
            if next > end {
                self.mapping.zero(base + end as usize, (next - end) as usize);
            }
        }
    }

    /// Straight to where it belongs, by calls that fail where there is no memory: of the area only what is usual is in place.
    pub(super) fn write_meta(&self, slot: u32, index: &ShardIndex) -> Result<(), FillError> {
        let (place, capacity) = (self.geometry.meta_place(slot, 0)?, self.geometry.meta_bytes);
        let put = |at: usize, part: &[u8]| match (at + part.len()) as u64 <= capacity {
            true => self.file.write_all_at(part, place + at as u64),
            // How long it is, is told when all of it is known.
            false => Ok(()),
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

/// Everything about the image but its digests.
pub(super) fn describe(
    of: &ImageOf<'_>,
    tensors: &[(TensorBox, &[u8])],
    state: &Value,
) -> Result<ShardIndex, FillError> {
    for (boxed, data) in tensors {
        boxed.check()?;
        let (has, needs) = (data.len() as u64, boxed.bytes().unwrap_or(u64::MAX));
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
    let chunking = Chunking::new(&entries, chunk_bytes).ok_or(ShardLayoutError::Chunking {
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
    // What can be wrong is found before the first byte is copied.
    index.set_chunks(vec![ChunkDigest::default(); chunking.count() as usize]);
    index.check()?;
    Ok(index)
}

/// Chunks that a thread takes at a time: the number of the first, and where their digests go.
pub(super) type Share<'a> = (u32, &'a mut [ChunkDigest]);

/// The chunks in pieces of so many bytes or little more, for threads to take: one that is held up elsewhere takes fewer.
pub(super) fn jobs<'a>(chunking: &Chunking, mut digests: &'a mut [ChunkDigest], job_bytes: u64) -> Vec<Share<'a>> {
    let (mut jobs, mut from, mut first) = (Vec::new(), 0, 0);
    for (chunk, range) in (0u32..).zip(chunking.ranges()) {
        // With what lies between: of tensors of a byte each, that is nearly all.
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
