//! The agent's side of a window: what passes is read where it lies, and its place given back.

use std::time::{Duration, Instant};

use rankguard_model::Generation;

use crate::arena::state::SlotState;
use crate::arena::window::{LOOK, Window};
use crate::arena::{Arena, ArenaError, StreamError};
use crate::format::ShardIndex;
use crate::image::MappedImage;

/// How long a rank may fill nothing before its image is given up: it may be stopped for a while, or a device may be.
const PATIENCE: Duration = Duration::from_secs(600);

/// An image that passes through a window. When it is dropped, whether whole or not, the rank comes to its end without
/// anybody who reads, and the slot serves the next image.
pub struct StreamedImage<'a> {
    arena: &'a Arena,
    slot: u32,
    index: ShardIndex,
    total: u64,
    window: Window<'a>,
    gone: &'a (dyn Fn() -> bool + Sync),
}

impl Arena {
    /// What the rank of this generation has begun to pass through a window. `gone` says whether the rank is; asked now and
    /// then while it is waited for.
    pub fn streamed<'a>(
        &'a self,
        slot: u32,
        generation: Generation,
        gone: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<StreamedImage<'a>, ArenaError> {
        let (is, of) = self.slot(slot)?;
        if (is, of) != (SlotState::Filling, generation) || !self.geometry.is_windowed() {
            let wanted = SlotState::Filling;
            return Err(ArenaError::State { slot, is, wanted });
        }
        let index = self.described(slot, generation)?;
        let total = index.file_bytes();
        let window = self.window(slot)?;
        window.begin();
        Ok(StreamedImage {
            arena: self,
            slot,
            index,
            total,
            window,
            gone,
        })
    }
}

impl StreamedImage<'_> {
    /// What the rank said of it before the first byte: everything but the digests.
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    /// Bytes that pass.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// What is written at a time.
    pub(crate) fn piece(&self) -> u64 {
        self.arena.geometry.piece()
    }

    /// The image where it lies: only what is filled and not yet free.
    pub(crate) fn mapped(&self) -> Result<MappedImage<'_>, ArenaError> {
        let bytes = self.arena.geometry.window;
        let base = self.arena.geometry.image_place(self.slot, 0, bytes)?;
        Ok(MappedImage::new(&self.arena.mapping, base as usize, bytes as usize))
    }

    /// Waits until everything up to `to` is filled, or nobody wants it any more.
    pub(crate) fn wait_for(&self, to: u64, unwanted: impl Fn() -> bool) -> Result<(), StreamError> {
        self.wait(|| unwanted() || self.window.filled() >= to)
    }

    /// Everything up to there may be filled over.
    pub(crate) fn free(&self, to: u64) {
        self.window.free(to);
    }

    /// Waits for the seal; gives what the rank says of the image now: the same, and the digests.
    pub(crate) fn sealed(&self) -> Result<ShardIndex, StreamError> {
        let generation = self.index.generation;
        let sealed = || self.arena.slot(self.slot).ok() == Some((SlotState::Sealed, generation));
        self.wait(sealed)?;
        let index = self.arena.described(self.slot, generation)?;
        let mut told = index.clone();
        (told.chunks, told.root) = (self.index.chunks.clone(), self.index.root);
        match told == self.index {
            true => Ok(index),
            false => Err(StreamError::Redescribed),
        }
    }

    /// Waits until it is `ready`, for as long as the rank is at it.
    fn wait(&self, ready: impl Fn() -> bool) -> Result<(), StreamError> {
        let (total, generation) = (self.total, self.index.generation);
        let (mut filled, mut since) = (self.window.filled(), Instant::now());
        loop {
            // Before the look: what a rank did before it went counts.
            let gone = (self.gone)();
            let filling = self.arena.slot(self.slot)? == (SlotState::Filling, generation);
            if ready() {
                return Ok(());
            }
            let now = self.window.filled();
            if now != filled {
                (filled, since) = (now, Instant::now());
            }
            let fence = self.arena.fence();
            if !filling {
                return Err(StreamError::GivenUp { filled, total });
            }
            if fence > generation {
                return Err(StreamError::Fenced {
                    generation,
                    fence,
                    filled,
                    total,
                });
            }
            if gone {
                return Err(StreamError::Gone { filled, total });
            }
            if since.elapsed() > PATIENCE {
                let patience = PATIENCE;
                return Err(StreamError::Stuck {
                    patience,
                    filled,
                    total,
                });
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for StreamedImage<'_> {
    fn drop(&mut self) {
        let generation = self.index.generation;
        if self.arena.slot(self.slot).ok() == Some((SlotState::Filling, generation)) {
            // Nobody reads it any more. A rank that is at it does not hear that the store is full: its attempt is void, and it
            // trains on as after any other save.
            self.window.let_pass();
            let _ = self.wait(|| false);
        }
        if self.arena.slot(self.slot).is_ok_and(|(_, of)| of == generation) {
            let _ = self.arena.release(self.slot);
        }
    }
}

impl std::fmt::Debug for StreamedImage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamedImage")
            .field("slot", &self.slot)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}
