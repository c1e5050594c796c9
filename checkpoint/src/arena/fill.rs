//! The rank's side: one pass that copies and sums, on several threads when the image is large.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, Rank, Step};
use serde_json::Value;

use crate::arena::state::{self, EMPTY, MAX_GENERATION, SlotState};
use crate::arena::{Arena, ArenaError, FillError};
use crate::format::{Chunking, Crc32c, DEFAULT_CHUNK_BYTES, MAX_STATE_BYTES, ShardDraft, ShardLayoutError, TensorBox};

/// Images up to this size are copied by the calling thread: starting another costs as much as copying a megabyte.
const ONE_THREAD_BYTES: u64 = 8 << 20;

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
    /// Size of a chunk; [`DEFAULT_CHUNK_BYTES`] unless there is a reason.
    pub chunk_bytes: u32,
}

impl<'a> ImageOf<'a> {
    /// With chunks of the usual size.
    pub fn new(job: &'a JobId, step: Step, generation: Generation, rank: Rank, world_size: u32) -> Self {
        Self {
            job,
            step,
            generation,
            rank,
            world_size,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
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
}

impl Arena {
    /// Copies `tensors`, back to back in the order given, and `state` into an empty slot and seals it. When this
    /// returns, the trainer may change its tensors; the agent can read the image even if the rank dies.
    pub fn fill(
        &self,
        slot: u32,
        of: &ImageOf<'_>,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<Filled, FillError> {
        let start = Instant::now();
        let mut draft = draft(of, tensors, state)?;
        let bytes = draft.image_bytes;
        if bytes > self.geometry.image_bytes {
            let capacity = self.geometry.image_bytes;
            return Err(FillError::Image { bytes, capacity });
        }
        self.unfenced(of.generation)?;
        let word = self.word(slot)?;
        let filling = state::pack(SlotState::Filling, of.generation);
        let claimed = word.compare_exchange(EMPTY, filling, Ordering::AcqRel, Ordering::Acquire);
        claimed.map_err(|is| ArenaError::State {
            slot,
            is: state::unpack(is).0,
            wanted: SlotState::Empty,
        })?;
        let written = self
            .write_image(slot, &mut draft, tensors)
            .and_then(|()| self.unfenced(of.generation));
        if let Err(error) = written {
            // Only if it is still ours: the agent may have taken it back and given it away.
            let _ = word.compare_exchange(filling, EMPTY, Ordering::AcqRel, Ordering::Acquire);
            return Err(error);
        }
        let sealed = state::pack(SlotState::Sealed, of.generation);
        let swapped = word.compare_exchange(filling, sealed, Ordering::AcqRel, Ordering::Acquire);
        swapped.map_err(|_| FillError::TakenBack { slot })?;
        Ok(Filled {
            slot,
            bytes,
            took: start.elapsed(),
        })
    }

    fn unfenced(&self, generation: Generation) -> Result<(), FillError> {
        let fence = self.fence();
        if generation < fence || generation.0 > MAX_GENERATION {
            return Err(FillError::Fenced { generation, fence });
        }
        Ok(())
    }

    fn write_image(&self, slot: u32, draft: &mut ShardDraft, tensors: &[(TensorBox, &[u8])]) -> Result<(), FillError> {
        let base = self.geometry.image_place(slot, 0, draft.image_bytes)? as usize;
        let pieces: Vec<(u64, &[u8])> = draft
            .tensors
            .iter()
            .map(|entry| entry.at)
            .zip(tensors.iter().map(|(_, data)| *data))
            .collect();
        let chunking = draft.chunking();
        let threads = threads_for(draft.image_bytes, chunking);
        let share = draft.crcs.len().div_ceil(threads).max(1);
        let copy = |first: usize, crcs: &mut [u32]| {
            for (chunk, crc) in (first as u32..).zip(crcs) {
                let range = chunking.range(chunk).expect("a draft has one checksum a chunk");
                *crc = self.copy_chunk(base, range, &pieces);
            }
        };
        std::thread::scope(|scope| {
            let mut shares = draft.crcs.chunks_mut(share).enumerate();
            let mine = shares.next();
            for (nth, crcs) in shares {
                scope.spawn(move || copy(nth * share, crcs));
            }
            if let Some((_, crcs)) = mine {
                copy(0, crcs);
            }
        });
        self.write_meta(slot, &draft.to_bytes())
    }

    /// Copies the part of the image that is `range`; gives its checksum.
    fn copy_chunk(&self, base: usize, range: Range<u64>, pieces: &[(u64, &[u8])]) -> u32 {
        let mut crc = Crc32c::default();
        let first = pieces.partition_point(|(at, data)| at + data.len() as u64 <= range.start);
        for (at, data) in &pieces[first..] {
            if *at >= range.end {
                break;
            }
            let end = at + data.len() as u64;
            let (from, to) = (range.start.max(*at), range.end.min(end));
            let part = &data[(from - at) as usize..(to - at) as usize];
            self.mapping.write_summed(base + from as usize, part, &mut crc);
        }
        crc.value()
    }

    fn write_meta(&self, slot: u32, meta: &[u8]) -> Result<(), FillError> {
        let (bytes, capacity) = (meta.len() as u64, self.geometry.meta_bytes);
        if bytes > capacity {
            return Err(FillError::Meta { bytes, capacity });
        }
        self.mapping
            .write(self.geometry.meta_place(slot, bytes)? as usize, meta);
        self.meta_word(slot)?.store(bytes, Ordering::Release);
        Ok(())
    }
}

/// Everything about the image but its checksums.
fn draft(of: &ImageOf<'_>, tensors: &[(TensorBox, &[u8])], state: &Value) -> Result<ShardDraft, FillError> {
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
    let (entries, end) = ShardDraft::lay_out(tensors.iter().map(|(boxed, _)| boxed.clone()));
    let image_bytes = end.unwrap_or(u64::MAX);
    let chunking = Chunking::new(image_bytes, of.chunk_bytes).ok_or(ShardLayoutError::Chunking {
        image_bytes,
        chunk_bytes: of.chunk_bytes,
    })?;
    let draft = ShardDraft {
        job: of.job.clone(),
        step: of.step,
        generation: of.generation,
        rank: of.rank,
        world_size: of.world_size,
        chunk_bytes: of.chunk_bytes,
        image_bytes,
        tensors: entries,
        crcs: vec![0; chunking.count() as usize],
        state: state.clone(),
    };
    draft.check()?;
    Ok(draft)
}

fn threads_for(image_bytes: u64, chunking: Chunking) -> usize {
    if image_bytes <= ONE_THREAD_BYTES {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    cores.min(MAX_THREADS).min(chunking.count() as usize).max(1)
}
