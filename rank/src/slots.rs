//! Filling the slots of an arena, at once or beside the training, and what happens when none is free.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_checkpoint::arena::{Arena, FillError, Filled, ImageOf, Streaming};
use rankguard_checkpoint_format::TensorBox;
use rankguard_model::{Generation, JobId, Ledger, Rank, Step};
use serde_json::Value;

use crate::Interrupted;
use crate::interrupt::{CHECK_INTERVAL, check_interrupts};

/// How long a window may be full, and nothing taken out of it, where the policy names no time: then the save is skipped
/// and counted.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a save does when every slot of the arena still holds an image that is not safe elsewhere.
///
/// Whatever it does is counted in [`Counts`]: an image is never dropped silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackPressure {
    /// Waits for a slot, at most this long; then the save is skipped and counted.
    Wait(Duration),
    /// The oldest image that nobody has begun to write gives way, and is counted; without one, as `Skip`.
    ReplaceOldest,
    /// This rank takes no part in the checkpoint, which makes the attempt void. Training goes on.
    Skip,
}

/// What became of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// How long the trainer waited, in all calls together.
    pub stall: Duration,
    /// Whether there is an image.
    pub outcome: SaveOutcome,
}

/// Whether there is an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveOutcome {
    /// Sealed in the arena; whoever owns the arena takes it from there.
    Sealed,
    /// Earlier images are not on disk yet, so every slot is taken, or the store takes nothing out of the window: this rank
    /// does not take part in this checkpoint, which makes the attempt void. Training goes on.
    SkippedNoFreeSlot,
    /// The job was submitted without a checkpoint store, so no memory was filled. Training goes on.
    SkippedNoStore,
}

/// What was saved and what was not, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Images sealed.
    pub sealed: u64,
    /// Saves for which no slot was free, whose window nobody took anything from, or that have no store.
    pub skipped: u64,
    /// Saves that had to wait for a slot or for room in their window, whether they got it or not.
    pub waited: u64,
    /// Sealed images that gave way to a newer one before they were written.
    pub replaced: u64,
}

/// What a save says of its tensors and its small state besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// What the small state is: a name with a version; may be empty.
    pub schema: String,
    /// For each tensor, which copy of the part it is: 0 is the primary, and all others must be equal to it. Where this is
    /// shorter than the tensors, primary copies.
    pub replicas: Vec<u32>,
    /// The part of the stream of samples that is in the state.
    pub ledger: Option<Ledger>,
}

/// One tensor of a save that goes on beside the training. The bytes are borrowed for as long as the copy takes, without
/// being copied first: whoever changes them earlier spoils this image, and only this one.
#[derive(Clone)]
pub struct Part {
    /// Which part of which tensor it is.
    pub boxed: TensorBox,
    /// Its bytes, and whatever keeps them alive.
    pub data: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("boxed", &self.boxed)
            .finish_non_exhaustive()
    }
}

/// The tensors of a save that goes on beside the training.
pub(crate) fn borrowed(parts: &[Part]) -> Vec<(TensorBox, &[u8])> {
    parts
        .iter()
        .map(|part| (part.boxed.clone(), (*part.data).as_ref()))
        .collect()
}

/// Whose images they are.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) job: JobId,
    pub(crate) generation: Generation,
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
}

impl Owner {
    fn of<'a>(&'a self, step: Step, notes: &'a Notes) -> ImageOf<'a> {
        ImageOf {
            replicas: &notes.replicas,
            ledger: notes.ledger,
            schema: &notes.schema,
            ..ImageOf::new(&self.job, step, self.generation, self.rank, self.world_size)
        }
    }
}

/// A sealed slot that its taker must be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) slot: u32,
    pub(crate) step: Step,
    /// Size of the image.
    pub(crate) bytes: u64,
    /// How long the trainer has waited for it so far.
    pub(crate) blocked: Duration,
}

/// A copy on its way.
#[derive(Debug)]
struct Copying {
    step: Step,
    blocked: Duration,
    worker: JoinHandle<Result<Filled, FillError>>,
    /// Disconnected when the worker has ended.
    ended: Receiver<()>,
}

/// The rank's end of an arena.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) counts: Counts,
    /// Another process writes the images, and says in the arena which one it has begun with.
    written_elsewhere: bool,
    /// The slot that was filled last.
    last: Option<u32>,
    copying: Option<Copying>,
}

/// A slot to fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    slot: u32,
    /// What is in it gives way.
    replace: bool,
}

/// How an image gets into a slot.
#[derive(Debug)]
pub(crate) enum Way {
    /// All of it stays there.
    Whole(Claim),
    /// It passes through, and waits for no longer than this where nothing is taken out.
    Through(Box<Streaming>, Duration),
}

impl Way {
    /// The slot of an image that its agent must hear of before it can pass.
    pub(crate) fn announced(&self) -> Option<u32> {
        match self {
            Self::Whole(_) => None,
            Self::Through(streaming, _) => Some(streaming.slot()),
        }
    }

    fn take(
        self,
        arena: &Arena,
        of: ImageOf<'_>,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<Filled, FillError> {
        match self {
            Self::Whole(Claim { slot, replace }) => arena.fill(slot, &ImageOf { replace, ..of }, tensors, state),
            Self::Through(streaming, patience) => arena.stream(*streaming, tensors, patience),
        }
    }
}

impl Slots {
    /// Slots of an arena whose images another process writes.
    pub(crate) fn written_elsewhere() -> Self {
        let mut slots = Self::default();
        slots.written_elsewhere = true;
        slots
    }

    /// Whether a copy is still under way.
    pub(crate) fn is_copying(&self) -> bool {
        self.copying
            .as_ref()
            .is_some_and(|copying| !copying.worker.is_finished())
    }

    /// A slot by the rules of `policy`. `make_room` is told how long it may take; it returns when a slot may have
    /// become free.
    pub(crate) fn claim(
        &mut self,
        policy: BackPressure,
        mut make_room: impl FnMut(Duration),
    ) -> Result<Option<Claim>, Interrupted> {
        let Some(arena) = self.arena.clone() else {
            return Ok(None);
        };
        let last = self.last;
        let free = || arena.slot_to_fill(last).map(|slot| Claim { slot, replace: false });
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
                let replace = |slot| Claim { slot, replace: true };
                let given = match self.written_elsewhere {
                    true => arena.slot_to_replace(last).map(replace),
                    false => free(),
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

    /// Describes the image where the slot is a window.
    pub(crate) fn way(
        &self,
        claim: Claim,
        owner: &Owner,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: (&Value, &Notes),
        policy: BackPressure,
    ) -> Result<Way, FillError> {
        let arena = self.arena.as_ref().expect("a slot of it was claimed");
        if !arena.geometry().is_windowed() {
            return Ok(Way::Whole(claim));
        }
        let patience = match policy {
            BackPressure::Wait(limit) => limit,
            BackPressure::ReplaceOldest | BackPressure::Skip => PATIENCE,
        };
        let streaming = arena.begin_stream(claim.slot, &owner.of(step, state.1), tensors, state.0)?;
        Ok(Way::Through(Box::new(streaming), patience))
    }

    /// Copies and seals; when it returns, the tensors may be changed. `None` where nobody took anything out of the window.
    pub(crate) fn fill(
        &mut self,
        way: Way,
        owner: &Owner,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: (&Value, &Notes),
        started: Instant,
    ) -> Result<Option<Sealed>, FillError> {
        let arena = self.arena.clone().expect("a slot of it was claimed");
        let filled = way.take(&arena, owner.of(step, state.1), tensors, state.0);
        self.note(filled, step, || started.elapsed())
    }

    /// Counts what became of a copy.
    fn note(
        &mut self,
        filled: Result<Filled, FillError>,
        step: Step,
        blocked: impl FnOnce() -> Duration,
    ) -> Result<Option<Sealed>, FillError> {
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
                Ok(Some(Sealed {
                    slot: filled.slot,
                    step,
                    bytes: filled.bytes,
                    blocked: blocked(),
                }))
            }
        }
    }

    /// Starts the copy on a thread of its own.
    pub(crate) fn begin(
        &mut self,
        way: Way,
        owner: &Owner,
        step: Step,
        parts: Vec<Part>,
        state: (Value, Notes),
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
        self.copying = Some(Copying {
            step,
            blocked: started.elapsed(),
            worker,
            ended,
        });
        Ok(())
    }

    /// Waits for the end of the copy that was begun, if there is one. An interrupt leaves the copy under way.
    pub(crate) fn wait_for_copy(&mut self) -> Result<(), Interrupted> {
        let Some(copying) = &self.copying else { return Ok(()) };
        while let Err(RecvTimeoutError::Timeout) = copying.ended.recv_timeout(CHECK_INTERVAL) {
            check_interrupts()?;
        }
        Ok(())
    }

    /// Gives the copy, if there is one, to the process that began it; this one is a fork of it and has no copying thread.
    pub(crate) fn forget_copy(&mut self) {
        std::mem::forget(self.copying.take());
    }

    /// Waits for what is left of the copy that was begun, and gives its step and what became of it. `None` when none was.
    pub(crate) fn finish(&mut self) -> Option<(Step, Result<Option<Sealed>, FillError>)> {
        let Copying {
            step, blocked, worker, ..
        } = self.copying.take()?;
        let started = Instant::now();
        let filled = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some((step, self.note(filled, step, || blocked + started.elapsed())))
    }
}

impl Drop for Slots {
    /// The trainer's memory is being read until the copy ends.
    fn drop(&mut self) {
        if let Some(copying) = self.copying.take() {
            let _ = copying.worker.join();
        }
    }
}
