//! Agent side of an arena: reads sealed images without trusting them, and writes restored ones.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use rankguard_model::Generation;

use crate::arena::protocol;
use crate::arena::state::{self, SlotState};
use crate::arena::{Arena, ArenaError};
use crate::format::{ChunkDigest, ShardIndex};
use crate::image::{ImageSink, ImageSource, MappedImage, SinkRegion};

/// Sealed slot with its description, copied out and validated.
#[derive(Debug, Clone)]
pub struct SealedImage<'a> {
    arena: &'a Arena,
    slot: u32,
    index: ShardIndex,
}

/// Slot that is receiving a restored image, for as long as this value exists.
#[derive(Debug)]
pub struct RestoredSlot<'a> {
    arena: &'a Arena,
    slot: u32,
}

impl Arena {
    /// Returns the image sealed in `slot`, durable or not. The description has been copied out and validated against
    /// itself and the arena geometry; the image bytes are not verified yet.
    pub fn sealed(&self, slot: u32) -> Result<SealedImage<'_>, ArenaError> {
        let (is, sealed) = self.slot(slot)?;
        if !is.is_image() {
            let wanted = SlotState::Sealed;
            return Err(ArenaError::State { slot, is, wanted });
        }
        if self.geometry.is_windowed() {
            return Err(ArenaError::NotHeld { slot });
        }
        let index = self.described(slot, sealed)?;
        Ok(SealedImage {
            arena: self,
            slot,
            index,
        })
    }

    /// Copies out the description of a slot and validates it against itself, the arena geometry and the generation of
    /// the slot.
    pub(super) fn described(&self, slot: u32, sealed: Generation) -> Result<ShardIndex, ArenaError> {
        let bytes = self.meta_word(slot)?.load(Ordering::Acquire);
        let capacity = self.geometry.meta_bytes;
        if bytes > capacity {
            return Err(ArenaError::MetaLength { slot, bytes, capacity });
        }
        let mut meta = vec![0; bytes as usize];
        let place = self.geometry.meta_place(slot, bytes)?;
        std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut meta, place).map_err(|source| {
            ArenaError::System {
                what: "read the arena",
                source,
            }
        })?;
        let index = ShardIndex::from_bytes(&meta).map_err(|problem| ArenaError::Index { slot, problem })?;
        let bytes = index.image_bytes;
        let capacity = self.geometry.image_bytes;
        if bytes > capacity {
            return Err(ArenaError::ImageLength { slot, bytes, capacity });
        }
        if index.generation != sealed {
            let described = index.generation;
            return Err(ArenaError::Generation {
                slot,
                sealed,
                described,
            });
        }
        Ok(index)
    }

    /// Returns every readable sealed slot, lowest first. Broken ones are left out; [`Arena::sealed`] returns the
    /// reason.
    pub fn sealed_images(&self) -> Vec<SealedImage<'_>> {
        (0..self.geometry.slots)
            .filter_map(|slot| self.sealed(slot).ok())
            .collect()
    }

    /// Claims an empty slot for a restored image, unless the generation is fenced off (RG-3). The rank copies it out with
    /// [`Arena::read_image`] and releases it; without a rank, [`Arena::release_restored`] does.
    pub fn begin_restore(&self, slot: u32, generation: Generation) -> Result<RestoredSlot<'_>, ArenaError> {
        let mut restoring = self.restoring();
        let claimed = protocol::claim(self.word(slot)?, SlotState::Restored, generation);
        claimed.map_err(|is| ArenaError::State {
            slot,
            is: state::unpack(is).0,
            wanted: SlotState::Empty,
        })?;
        // After the claim, so that a fence that is raised meanwhile finds the slot or is found here.
        let fence = self.fence();
        if generation < fence {
            self.release_restored(slot, generation)?;
            return Err(ArenaError::Fenced { generation, fence });
        }
        restoring.insert(slot);
        Ok(RestoredSlot { arena: self, slot })
    }

    /// Returns true if a thread of this process writes a restored image into the slot. Such a slot must not be released:
    /// the thread would write into the image of the next owner.
    pub fn is_restoring(&self, slot: u32) -> bool {
        self.restoring().contains(&slot)
    }

    /// Empties a slot with a restored image of this generation that no rank will copy out; leaves any other as it is.
    pub fn release_restored(&self, slot: u32, generation: Generation) -> Result<(), ArenaError> {
        protocol::discard_restored(self.word(slot)?, generation);
        Ok(())
    }

    fn restoring(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.restoring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RestoredSlot<'_> {
    fn drop(&mut self) {
        self.arena.restoring().remove(&self.slot);
    }
}

impl SealedImage<'_> {
    /// Returns the description that the rank wrote.
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns a private copy of one chunk, verified against the rank's digest. `None` past the end.
    pub fn chunk(&self, chunk: u32) -> Result<Option<Vec<u8>>, ArenaError> {
        let Some(range) = self.index.chunking().range(chunk) else {
            return Ok(None);
        };
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let stated = self.index.chunks[chunk as usize];
        let found = self.copy_out(range.start, &mut bytes)?;
        if stated != found {
            let slot = self.slot;
            return Err(ArenaError::Damaged {
                slot,
                chunk,
                stated,
                found,
            });
        }
        Ok(Some(bytes))
    }

    /// True if every chunk has the digest that the rank recorded. Uses up to eight threads.
    pub fn is_whole(&self) -> bool {
        let Some(image) = self.mapped() else { return false };
        let chunks: Vec<(Range<u64>, ChunkDigest)> = self
            .index
            .chunking()
            .ranges()
            .zip(self.index.chunks.iter().copied())
            .collect();
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(8);
        let share = chunks.len().div_ceil(threads).max(1);
        let sound =
            |part: &[(Range<u64>, ChunkDigest)]| part.iter().all(|(range, stated)| image.digest(range) == *stated);
        std::thread::scope(|scope| {
            let parts: Vec<_> = chunks
                .chunks(share)
                .map(|part| scope.spawn(move || sound(part)))
                .collect();
            let mut parts = parts.into_iter();
            parts.all(|part| {
                part.join()
                    .expect("digesting does not panic: the image lies in its slot")
            })
        })
    }

    /// Copies image bytes from offset `at` on; returns the digest of the copy.
    pub(crate) fn copy_out(&self, at: u64, out: &mut [u8]) -> Result<ChunkDigest, ArenaError> {
        let place = self.arena.geometry.image_place(self.slot, at, out.len() as u64)?;
        Ok(self.arena.mapping.copy_out(place as usize, out))
    }
}

impl ImageSource for SealedImage<'_> {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        Ok(self.arena.read_image(self.slot, at, out)?)
    }

    fn mapped(&self) -> Option<MappedImage<'_>> {
        let bytes = self.arena.geometry.image_bytes;
        let base = self.arena.geometry.image_place(self.slot, 0, bytes).ok()?;
        Some(MappedImage::new(&self.arena.mapping, base as usize, bytes as usize))
    }
}

impl ImageSink for RestoredSlot<'_> {
    fn capacity(&self) -> u64 {
        self.arena.geometry.area()
    }

    fn split(&mut self, ranges: &[Range<u64>]) -> Vec<SinkRegion<'_>> {
        let base = self
            .arena
            .geometry
            .image_place(self.slot, 0, 0)
            .expect("its slot exists");
        let piece = |range: &Range<u64>| SinkRegion::mapped(&self.arena.mapping, base as usize, range);
        ranges.iter().map(piece).collect()
    }
}
