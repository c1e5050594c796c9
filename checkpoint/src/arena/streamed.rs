//! Agent side of a window: reads the bytes in place and frees their space.

use std::time::{Duration, Instant};

use rankguard_model::Generation;

use crate::arena::state::SlotState;
use crate::arena::window::{LOOK, WindowView};
use crate::arena::{Arena, ArenaError, StreamError};
use crate::format::ShardIndex;
use crate::image::MappedImage;

/// Maximum time without progress of the rank before its image is abandoned; a rank or device may be stopped for a
/// while.
const PATIENCE: Duration = Duration::from_secs(600);

/// Image that passes through a window. On drop, complete or not, the rank can finish without a reader, and the slot
/// becomes free for the next image.
pub struct StreamedImage<'a> {
    arena: &'a Arena,
    slot: u32,
    index: ShardIndex,
    total: u64,
    window: WindowView<'a>,
    gone: &'a (dyn Fn() -> bool + Sync),
}

impl Arena {
    /// Opens the image that the rank of this generation has begun to pass through a window. `gone` returns true if the
    /// rank has exited; it is polled during waits.
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
    /// Returns the description that the rank wrote before the first byte: everything but the digests.
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    /// Returns the number of bytes that pass.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the size of one write, bytes.
    pub(crate) fn piece(&self) -> u64 {
        self.arena.geometry.piece()
    }

    /// Returns the window as mapped memory. Only bytes that are filled and not yet freed are valid.
    pub(crate) fn mapped(&self) -> Result<MappedImage<'_>, ArenaError> {
        let bytes = self.arena.geometry.window;
        let base = self.arena.geometry.image_place(self.slot, 0, bytes)?;
        Ok(MappedImage::new(&self.arena.mapping, base as usize, bytes as usize))
    }

    /// Waits until all bytes before `to` are filled, or `unwanted` returns true.
    pub(crate) fn wait_for(&self, to: u64, unwanted: impl Fn() -> bool) -> Result<(), StreamError> {
        self.wait(|| unwanted() || self.window.filled() >= to)
    }

    /// Frees all bytes before `to` for the rank to overwrite.
    pub(crate) fn free(&self, to: u64) {
        self.window.free(to);
    }

    /// Waits for the seal and returns the final description with the digests. An error if anything else in it has
    /// changed.
    pub(crate) fn sealed(&self) -> Result<ShardIndex, StreamError> {
        let generation = self.index.generation;
        let sealed = || self.arena.slot(self.slot).ok() == Some((SlotState::Sealed, generation));
        self.wait(sealed)?;
        let index = self.arena.described(self.slot, generation)?;
        let mut told = index.clone();
        (told.chunks, told.root) = (self.index.chunks.clone(), self.index.root);
        if told == self.index {
            Ok(index)
        } else {
            Err(StreamError::Redescribed)
        }
    }

    /// Waits until `ready` returns true, as long as the rank makes progress.
    fn wait(&self, ready: impl Fn() -> bool) -> Result<(), StreamError> {
        let total = self.total;
        let generation = self.index.generation;
        let mut filled = self.window.filled();
        let mut since = Instant::now();
        loop {
            // Read before the other checks, so that the last writes of an exited rank count.
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
            // No reader is left. The rank does not learn that the store is full: its attempt is void, and it continues
            // training as after any other save.
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
