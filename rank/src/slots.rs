//! Filling of arena slots, synchronously or in the background, and the behaviour when none is free.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_checkpoint::arena::{Arena, FillError, PendingStream, SaveRequest, SaveResult};
use rankguard_checkpoint_format::TensorBox;
use rankguard_model::{Generation, JobId, Rank, SampleRange, Step};
use serde_json::Value;

use crate::CallInterrupted;
use crate::interrupt::{CHECK_INTERVAL, check_interrupts};

/// Longest time that a window may be full without progress if the policy has no time limit; then the save is skipped
/// and counted.
const PATIENCE: Duration = Duration::from_secs(30);

/// Behaviour of a save when every slot of the arena still holds an image that is not stored elsewhere.
///
/// Every outcome is counted in [`SaveCounts`]: an image is never dropped silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackPressure {
    /// Waits for a slot, at most this long; then the save is skipped and counted.
    Wait(Duration),
    /// Replaces the oldest image that is not being written, and counts it; if there is none, acts as `Skip`.
    ReplaceOldest,
    /// Skips the save on this rank, which makes the attempt void. Training continues.
    Skip,
}

/// Result of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveReport {
    /// Time for which the trainer was blocked, in all calls together.
    pub stall: Duration,
    /// Outcome of the save.
    pub outcome: SaveOutcome,
}

/// Outcome of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The image is sealed in the arena; the arena's owner writes it from there.
    Sealed,
    /// Earlier images are not on disk yet, so every slot is in use, or the store makes no progress in the window: this
    /// rank does not take part in the checkpoint, which makes the attempt void. Training continues.
    SkippedNoFreeSlot,
    /// The job was submitted without a checkpoint store, so no memory was filled. Training continues.
    SkippedNoStore,
}

/// Counts of saves by outcome, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SaveCounts {
    /// Number of images sealed.
    pub sealed: u64,
    /// Number of saves skipped for lack of a free slot, of progress in the window, or of a store.
    pub skipped: u64,
    /// Number of saves that waited for a slot or for space in their window, successfully or not.
    pub waited: u64,
    /// Number of sealed images that were replaced by a newer one before they were written.
    pub replaced: u64,
}

/// Notes of a save on its tensors and its small state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaveNotes {
    /// Schema of the small state: a name with a version; may be empty.
    pub schema: String,
    /// Replica number of each tensor's part: 0 is the primary, and all replicas must be equal to it. Tensors beyond
    /// the end of this list are primary.
    pub replicas: Vec<u32>,
    /// Part of the sample stream that the state covers.
    pub ledger: Option<SampleRange>,
}

/// Tensor part of a save in the background. The bytes are borrowed for as long as the copy takes, without being copied
/// first: an earlier change corrupts this image, and only this one.
#[derive(Clone)]
pub struct TensorPart {
    /// Box of the tensor.
    pub boxed: TensorBox,
    /// Bytes of the box, with their owner.
    pub data: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

impl std::fmt::Debug for TensorPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("boxed", &self.boxed)
            .finish_non_exhaustive()
    }
}

/// Returns the tensors of a background save.
pub(crate) fn borrowed(parts: &[TensorPart]) -> Vec<(TensorBox, &[u8])> {
    parts
        .iter()
        .map(|part| (part.boxed.clone(), (*part.data).as_ref()))
        .collect()
}

/// Owner of the images.
#[derive(Debug, Clone)]
pub(crate) struct ImageOwner {
    pub(crate) job: JobId,
    pub(crate) generation: Generation,
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
}

impl ImageOwner {
    fn of<'a>(&'a self, step: Step, notes: &'a SaveNotes) -> SaveRequest<'a> {
        SaveRequest {
            replicas: &notes.replicas,
            ledger: notes.ledger,
            schema: &notes.schema,
            ..SaveRequest::new(&self.job, step, self.generation, self.rank, self.world_size)
        }
    }
}

/// Sealed slot, to be reported to the writer of its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealedSlot {
    pub(crate) slot: u32,
    pub(crate) step: Step,
    /// Size of the image in bytes.
    pub(crate) bytes: u64,
    /// Time for which the trainer was blocked so far.
    pub(crate) blocked: Duration,
}

/// Copy that is running in the background.
#[derive(Debug)]
struct BackgroundCopy {
    step: Step,
    blocked: Duration,
    worker: JoinHandle<Result<SaveResult, FillError>>,
    /// Disconnected when the worker has ended.
    ended: Receiver<()>,
}

/// Rank's side of an arena.
#[derive(Debug, Default)]
pub(crate) struct ArenaSlots {
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) counts: SaveCounts,
    /// True if another process writes the images, and marks in the arena those that it is writing.
    written_elsewhere: bool,
    /// Slot that was filled last.
    last: Option<u32>,
    copying: Option<BackgroundCopy>,
}

/// Slot to fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotClaim {
    slot: u32,
    /// True if its present image is replaced.
    replace: bool,
}

/// Way in which an image is written to a slot.
#[derive(Debug)]
pub(crate) enum SlotWrite {
    /// The slot holds the whole image.
    Whole(SlotClaim),
    /// The image is streamed through the slot's window, and waits at most this long without progress.
    Through(Box<PendingStream>, Duration),
}

impl SlotWrite {
    /// Returns the slot of a streamed image, which must be announced to its agent.
    pub(crate) fn announced(&self) -> Option<u32> {
        match self {
            Self::Whole(_) => None,
            Self::Through(streaming, _) => Some(streaming.slot()),
        }
    }

    fn take(
        self,
        arena: &Arena,
        of: SaveRequest<'_>,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<SaveResult, FillError> {
        match self {
            Self::Whole(SlotClaim { slot, replace }) => {
                arena.fill(slot, &SaveRequest { replace, ..of }, tensors, state)
            }
            Self::Through(streaming, patience) => arena.stream(*streaming, tensors, patience),
        }
    }
}

impl ArenaSlots {
    /// Returns the slots of an arena that another process writes to disk.
    pub(crate) fn written_elsewhere() -> Self {
        let mut slots = Self::default();
        slots.written_elsewhere = true;
        slots
    }

    /// Returns true if a copy is still running.
    pub(crate) fn is_copying(&self) -> bool {
        self.copying
            .as_ref()
            .is_some_and(|copying| !copying.worker.is_finished())
    }

    /// Claims a slot by the rules of `policy`. `make_room` receives its time limit and returns when a slot may have
    /// become free.
    pub(crate) fn claim(
        &mut self,
        policy: BackPressure,
        mut make_room: impl FnMut(Duration),
    ) -> Result<Option<SlotClaim>, CallInterrupted> {
        let Some(arena) = self.arena.clone() else {
            return Ok(None);
        };
        let last = self.last;
        let free = || arena.slot_to_fill(last).map(|slot| SlotClaim { slot, replace: false });
        if let Some(claim) = free() {
            return Ok(Some(claim));
        }
        match policy {
            BackPressure::Wait(limit) => {
                self.counts.waited += 1;
                let until = Instant::now() + limit;
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    make_room(left.min(CHECK_INTERVAL));
                    if let Some(claim) = free() {
                        return Ok(Some(claim));
                    }
                    check_interrupts()?;
                }
            }
            BackPressure::ReplaceOldest => {
                make_room(Duration::ZERO);
                let replace = |slot| SlotClaim { slot, replace: true };
                let given = if self.written_elsewhere {
                    arena.slot_to_replace(last).map(replace)
                } else {
                    free()
                };
                if given.is_some() {
                    self.counts.replaced += 1;
                    return Ok(given);
                }
            }
            BackPressure::Skip => {}
        }
        self.counts.skipped += 1;
        Ok(None)
    }

    /// Returns the way of an image; begins its stream if the slot is a window.
    pub(crate) fn way(
        &self,
        claim: SlotClaim,
        owner: &ImageOwner,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: (&Value, &SaveNotes),
        policy: BackPressure,
    ) -> Result<SlotWrite, FillError> {
        let arena = self.arena.as_ref().expect("a slot of it was claimed");
        if !arena.geometry().is_windowed() {
            return Ok(SlotWrite::Whole(claim));
        }
        let patience = match policy {
            BackPressure::Wait(limit) => limit,
            BackPressure::ReplaceOldest | BackPressure::Skip => PATIENCE,
        };
        let streaming = arena.begin_stream(claim.slot, &owner.of(step, state.1), tensors, state.0)?;
        Ok(SlotWrite::Through(Box::new(streaming), patience))
    }

    /// Copies and seals; when it returns, the tensors may be changed. Returns `None` if the window made no progress.
    pub(crate) fn fill(
        &mut self,
        way: SlotWrite,
        owner: &ImageOwner,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: (&Value, &SaveNotes),
        started: Instant,
    ) -> Result<Option<SealedSlot>, FillError> {
        let arena = self.arena.clone().expect("a slot of it was claimed");
        let filled = way.take(&arena, owner.of(step, state.1), tensors, state.0);
        self.note(filled, step, || started.elapsed())
    }

    /// Counts the result of a copy.
    fn note(
        &mut self,
        filled: Result<SaveResult, FillError>,
        step: Step,
        blocked: impl FnOnce() -> Duration,
    ) -> Result<Option<SealedSlot>, FillError> {
        match filled {
            Err(FillError::Stuck { .. }) => {
                self.counts.waited += 1;
                self.counts.skipped += 1;
                Ok(None)
            }
            Err(problem) => Err(problem),
            Ok(filled) => {
                self.counts.sealed += 1;
                self.counts.waited += u64::from(!filled.waited.is_zero());
                self.last = Some(filled.slot);
                Ok(Some(SealedSlot {
                    slot: filled.slot,
                    step,
                    bytes: filled.bytes,
                    blocked: blocked(),
                }))
            }
        }
    }

    /// Starts the copy on a separate thread.
    pub(crate) fn begin(
        &mut self,
        way: SlotWrite,
        owner: &ImageOwner,
        step: Step,
        parts: Vec<TensorPart>,
        state: (Value, SaveNotes),
        started: Instant,
    ) -> std::io::Result<()> {
        let arena = self.arena.clone().expect("a slot of it was claimed");
        let owner = owner.clone();
        let (ending, ended) = channel();
        let copy = move || {
            let _ending: Sender<()> = ending;
            way.take(&arena, owner.of(step, &state.1), &borrowed(&parts), &state.0)
        };
        let worker = std::thread::Builder::new()
            .name("rankguard-copy".to_owned())
            .spawn(copy)?;
        self.copying = Some(BackgroundCopy {
            step,
            blocked: started.elapsed(),
            worker,
            ended,
        });
        Ok(())
    }

    /// Waits for the end of the copy that was begun, if there is one. An interrupt leaves the copy running.
    pub(crate) fn wait_for_copy(&mut self) -> Result<(), CallInterrupted> {
        let Some(copying) = &self.copying else { return Ok(()) };
        while let Err(RecvTimeoutError::Timeout) = copying.ended.recv_timeout(CHECK_INTERVAL) {
            check_interrupts()?;
        }
        Ok(())
    }

    /// Forgets the copy, if there is one, in a fork of the process that began it: the fork has no copying thread.
    pub(crate) fn forget_copy(&mut self) {
        std::mem::forget(self.copying.take());
    }

    /// Waits for the rest of the copy that was begun, and returns its step and result. Returns `None` if none was
    /// begun.
    pub(crate) fn finish(&mut self) -> Option<(Step, Result<Option<SealedSlot>, FillError>)> {
        let BackgroundCopy {
            step, blocked, worker, ..
        } = self.copying.take()?;
        let started = Instant::now();
        let filled = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some((step, self.note(filled, step, || blocked + started.elapsed())))
    }
}

impl Drop for ArenaSlots {
    /// The trainer's memory is being read until the copy ends.
    fn drop(&mut self) {
        if let Some(copying) = self.copying.take() {
            let _ = copying.worker.join();
        }
    }
}
