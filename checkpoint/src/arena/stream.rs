//! Rank side of a window: the same copy and digest pass, piece by piece as space becomes free.

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rankguard_model::Generation;
use serde_json::Value;

use crate::arena::fill::{ChunkBatch, JOB_BYTES, describe, jobs, threads_for};
use crate::arena::state::{self, SlotState};
use crate::arena::window::{FillProgress, LOOK, WindowView};
use crate::arena::{Arena, ArenaError, FillError, SaveRequest, SaveResult, kernel, layout, protocol};
use crate::format::{ChunkDigest, ChunkLayout, ShardIndex, TensorBox};

/// Image that a rank has described; the agent must be notified before it can pass.
#[derive(Debug)]
pub struct PendingStream {
    slot: u32,
    index: ShardIndex,
    threads: usize,
}

impl PendingStream {
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

/// State shared by the threads of one pass.
struct StreamPass<'a> {
    arena: &'a Arena,
    slot: u32,
    index: &'a ShardIndex,
    chunking: &'a ChunkLayout,
    tensors: &'a [(TensorBox, &'a [u8])],
    window: WindowView<'a>,
    /// Size of the shard file, bytes.
    total: u64,
    patience: Duration,
}

/// Remaining work, in order. A thread that takes a part waits for its space while holding the lock, so later parts wait
/// behind it.
struct RemainingBatches<'a> {
    jobs: std::vec::IntoIter<ChunkBatch<'a>>,
    waited: Duration,
    failed: Option<FillError>,
}

impl Arena {
    /// Claims the window and describes the image that is to pass. The caller then notifies the agent and calls
    /// [`Arena::stream`].
    pub fn begin_stream(
        &self,
        slot: u32,
        of: &SaveRequest<'_>,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<PendingStream, FillError> {
        let index = describe(of, tensors, state)?;
        let bytes = index.image_bytes;
        let capacity = self.geometry.image_bytes;
        if bytes > capacity {
            return Err(FillError::Image { bytes, capacity });
        }
        let window = self.geometry.window;
        if bytes > window && !self.geometry.passes(index.chunk_bytes) {
            let least = layout::window_for(index.chunk_bytes);
            return Err(ArenaError::Window {
                image_bytes: bytes,
                window,
                least,
            }
            .into());
        }
        self.unfenced(of.generation)?;
        let word = self.word(slot)?;
        protocol::claim(word, SlotState::Filling, of.generation).map_err(|is| ArenaError::State {
            slot,
            is: state::unpack(is).0,
            wanted: SlotState::Empty,
        })?;
        self.window(slot)?.open();
        if let Err(error) = self.write_meta(slot, &index) {
            protocol::give_up(word, of.generation);
            return Err(error);
        }
        let threads = of.threads;
        Ok(PendingStream { slot, index, threads })
    }

    /// Passes the described image, of the same tensors, and seals it. Waits while the window is full, as long as
    /// something is taken out within `patience`. After it returns, the trainer may change its tensors.
    pub fn stream(
        &self,
        streaming: PendingStream,
        tensors: &[(TensorBox, &[u8])],
        patience: Duration,
    ) -> Result<SaveResult, FillError> {
        let start = Instant::now();
        let PendingStream {
            slot,
            mut index,
            threads,
        } = streaming;
        let generation = index.generation;
        let bytes = index.image_bytes;
        let passed = self
            .pass(slot, &mut index, tensors, threads, patience)
            .and_then(|waited| self.unfenced(generation).map(|()| waited));
        let word = self.word(slot)?;
        let waited = passed.inspect_err(|_| protocol::abandon_stream(word, generation))?;
        if !protocol::seal(word, generation) {
            return Err(FillError::TakenBack { slot });
        }
        Ok(SaveResult {
            slot,
            bytes,
            took: start.elapsed(),
            waited,
        })
    }

    /// Copies everything and adds the digests; returns how long the window was full.
    fn pass(
        &self,
        slot: u32,
        index: &mut ShardIndex,
        tensors: &[(TensorBox, &[u8])],
        threads: usize,
        patience: Duration,
    ) -> Result<Duration, FillError> {
        let mut chunks = std::mem::take(&mut index.chunks);
        let chunking = index.chunking();
        let pass = StreamPass {
            arena: self,
            slot,
            index,
            chunking: &chunking,
            tensors,
            window: self.window(slot)?,
            total: chunking.ranges().last().map_or(0, |last| last.end),
            patience,
        };
        // Small enough that the next part fits beside a piece and a chunk that are being taken out.
        let job_bytes = JOB_BYTES.min(self.geometry.window / 8);
        let waited = pass.run(jobs(&chunking, &mut chunks, job_bytes), threads)?;
        // Until it has begun, the agent may still be reading the earlier description.
        pass.wait(|| pass.window.is_begun())?;
        index.set_chunks(chunks);
        self.write_meta(slot, index)?;
        Ok(waited)
    }
}

impl StreamPass<'_> {
    fn run(&self, jobs: Vec<ChunkBatch<'_>>, threads: usize) -> Result<Duration, FillError> {
        let threads = threads_for(threads, self.index.image_bytes, jobs.len());
        let left = Mutex::new(RemainingBatches {
            jobs: jobs.into_iter(),
            waited: Duration::ZERO,
            failed: None,
        });
        let filling = Mutex::new(FillProgress::default());
        let work = || {
            while let Some((range, first, digests)) = self.next(&left) {
                for (chunk, digest) in (first..).zip(digests) {
                    *digest = self.copy(chunk);
                }
                let mut filling = filling.lock().expect("no holder of the count panics");
                self.window.fill(filling.add(range.start, range.end));
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            work();
            for other in others {
                other.join().expect("copying does not panic: all places are checked");
            }
        });
        let left = left.into_inner().expect("no holder of the work panics");
        left.failed.map_or(Ok(left.waited), Err)
    }

    /// Returns the next part and its image range as soon as there is space for it. The first part in progress always
    /// gets its space eventually, because the agent needs only the parts before it.
    fn next<'a>(&self, left: &Mutex<RemainingBatches<'a>>) -> Option<(Range<u64>, u32, &'a mut [ChunkDigest])> {
        let mut left = left.lock().expect("no holder of the work panics");
        if left.failed.is_some() {
            return None;
        }
        let (first, digests) = left.jobs.next()?;
        let range = self.start(first)..self.start(first + digests.len() as u32);
        match self.wait(|| self.window.has_room(range.end)) {
            Ok(waited) => left.waited += waited,
            Err(error) => {
                left.failed = Some(error);
                return None;
            }
        }
        Some((range, first, digests))
    }

    /// Returns the start of a chunk; after the last chunk, the end of the file.
    fn start(&self, chunk: u32) -> u64 {
        self.chunking.range(chunk).map_or(self.total, |range| range.start)
    }

    /// Copies one chunk, zeroes the padding after it, and returns its digest.
    fn copy(&self, chunk: u32) -> ChunkDigest {
        let range = self.chunking.range(chunk);
        let place = self.chunking.tensor_of(chunk);
        let (range, place) = range.zip(place).expect("jobs are made of the image's chunks");
        let at = self.index.tensors[place].at;
        let part = &self.tensors[place].1[(range.start - at) as usize..(range.end - at) as usize];
        let digest = match self.places(&range) {
            (whole, None) => self.arena.mapping.copy_in(whole.start, part),
            (head, Some(tail)) => {
                let (first, rest) = part.split_at(head.len());
                self.arena.mapping.copy_in(head.start, first);
                self.arena.mapping.copy_in(tail.start, rest);
                kernel::digest(part)
            }
        };
        let (head, tail) = self.places(&(range.end..self.start(chunk + 1)));
        for gap in [head].into_iter().chain(tail) {
            self.arena.mapping.zero(gap.start, gap.len());
        }
        digest
    }

    /// Returns the mapping ranges of image bytes: two if they wrap around the end of the window.
    fn places(&self, range: &Range<u64>) -> (Range<usize>, Option<Range<usize>>) {
        let base = self.arena.geometry.image_place(self.slot, 0, 0);
        let base = base.expect("the slot was claimed") as usize;
        let from = (range.start % self.window.bytes) as usize;
        let length = (range.end - range.start) as usize;
        let fits = length.min(self.window.bytes as usize - from);
        let head = base + from..base + from + fits;
        (head, (fits < length).then(|| base..base + length - fits))
    }

    /// Waits until `ready` returns true; returns the time waited.
    fn wait(&self, ready: impl Fn() -> bool) -> Result<Duration, FillError> {
        if ready() {
            return Ok(Duration::ZERO);
        }
        let (slot, own): (u32, (SlotState, Generation)) = (self.slot, (SlotState::Filling, self.index.generation));
        let started = Instant::now();
        let mut freed = self.window.freed();
        let mut since = started;
        while !ready() {
            if self.arena.slot(slot)? != own {
                return Err(FillError::TakenBack { slot });
            }
            let now = self.window.freed();
            if now != freed {
                (freed, since) = (now, Instant::now());
            }
            if since.elapsed() > self.patience {
                let patience = self.patience;
                return Err(FillError::Stuck { slot, patience });
            }
            std::thread::sleep(LOOK);
        }
        Ok(started.elapsed())
    }
}
