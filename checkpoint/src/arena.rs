//! Node memory that outlives ranks: images are sealed here before they are stored elsewhere.
//!
//! Each rank slot of a node has one arena, in one memfd that the agent owns and passes to the rank as a file
//! descriptor. File seals prevent it from shrinking or growing, so neither side can make the other's mapping fault.
//!
//! # Layout (little-endian, everything aligned to a page of 4096 bytes)
//!
//! ```text
//! 0      "RGARENA1"                      u64
//! 8      version (2; 3 with windows)     u32
//! 12     slots                           u32
//! 16     bytes of a slot's meta area     u64
//! 24     bytes of the largest image      u64
//! 32     fence: lowest generation that may fill and seal   u64, atomic, only ever raised
//! 40     bytes of a slot's image area where that is a window, else 0 and it holds a whole image   u64
//! 4096   slot 0: header page | meta area | image area
//! ...    slot 1, slot 2 ...
//!
//! slot header:
//! 0      state (low 8 bits) and generation (high 56 bits)  u64, atomic
//! 8      bytes used of the meta area     u64
//! 16     of a window: bytes that were filled               u64, atomic, the rank's
//! 24     of a window: bytes that are written and free      u64, atomic, the agent's
//! ```
//!
//! The meta area holds a [`ShardIndex`](crate::format::ShardIndex) in its own digested envelope: the tensor table, an
//! XXH3-128 for each chunk and the rank state. A sealed slot is therefore self-describing and verifiable. Only the part
//! of the area that descriptions need takes memory.
//!
//! # Life of a slot
//!
//! - `Empty => Filling`: a rank begins to copy ([`Arena::fill`]).
//! - `Filling => Sealed`: one compare-and-swap after the last byte. A rank that dies before leaves `Filling`, which is
//!   never read.
//! - `Filling => Empty`: the fill failed, or the agent ended the rank and took the slot back. The swap to `Sealed` then
//!   fails, so a stale rank cannot seal (RG-3).
//! - `Empty => Restored`: the agent writes a restored image for the rank to copy out.
//! - `Sealed => Writing => Durable`: the agent stores the image elsewhere; it remains readable.
//! - `Durable => Filling`: the rank overwrites it, and also a `Sealed` one if its policy is to replace. A concurrent
//!   reader gets bytes with a wrong digest.
//! - `(Sealed | Writing | Durable | Restored) => Empty`: the agent no longer needs the image; the rank has copied it
//!   out.
//! - `Writing => Sealed`, `(Filling | Restored) => Empty`: a new agent has taken over the arena ([`Arena::inherit`]).
//!
//! # Windows
//!
//! If memory is too small for a whole image, the image area is a window that images pass through ([`Arena::windowed`]):
//! byte `n` of the image lies at `n` modulo the window. The rank writes the description without digests, fills and
//! counts piece by piece, and waits while the window is full; the agent digests and writes each piece and frees its
//! space. At the end the rank adds the digests and seals.
//!
//! No image is ever held, so there is none to read, copy or restore from. The slot goes
//! `Empty => Filling => Sealed => Empty`, the last when the shard is durable or void; if the rank gives up,
//! `Filling => Writing => Empty`, the last when the agent has noticed. A rank that dies leaves only a temporary file.
//!
//! # Trust
//!
//! The agent uses the geometry that it created, never the one in memory, and verifies every description after copying
//! it out and every chunk that it writes or sends. A rank that corrupts a slot therefore spoils only its own
//! checkpoint. Changes by a rank between verification and write are detected by every later load.

mod error;
mod fill;
#[allow(unsafe_code)]
pub(crate) mod kernel;
mod layout;
#[allow(unsafe_code)]
pub(crate) mod mapping;
mod protocol;
mod sealed;
mod state;
mod stream;
mod streamed;
mod window;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rankguard_model::Generation;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};

pub use error::{ArenaError, FillError, StreamError};
pub use fill::{SaveRequest, SaveResult};
pub use layout::{ArenaGeometry, MAX_SLOTS, MIN_WINDOW_BYTES, least_window};
use mapping::SharedMapping;
pub use sealed::{RestoredSlot, SealedImage};
pub use state::SlotState;
pub use stream::PendingStream;
pub use streamed::StreamedImage;

use crate::arena::layout::{FENCE_AT, HEADER_BYTES, SLOT_FILLED_AT, SLOT_FREED_AT, SLOT_META_AT};
use crate::arena::window::WindowView;

/// Arena, used by both agent and rank.
pub struct Arena {
    file: File,
    mapping: SharedMapping,
    geometry: ArenaGeometry,
    /// Slots into which threads of this process write restored images.
    restoring: Mutex<BTreeSet<u32>>,
}

/// Requested dimensions of an arena of whole images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaShape {
    pub slots: u32,
    /// Maximum image size, bytes.
    pub image_bytes: u64,
    /// Minimum size of the description area of a slot, bytes; 0 for the usual size of the image.
    pub meta_bytes: u64,
}

impl ArenaShape {
    fn geometry(self) -> Result<ArenaGeometry, ArenaError> {
        let Self { slots, image_bytes, .. } = self;
        let geometry = ArenaGeometry::new(slots, image_bytes).and_then(|usual| usual.with_meta(self.meta_bytes));
        geometry.ok_or(ArenaError::Size { slots, image_bytes })
    }
}

/// File seals that both sides rely on.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Arena {
    /// Creates an arena of `slots` slots for images of up to `image_bytes`, and allocates every page that a usual image
    /// needs: a first touch costs ten times as much as a copy, and must not delay the trainer's first save.
    pub fn create(name: &str, slots: u32, image_bytes: u64) -> Result<Self, ArenaError> {
        let meta_bytes = 0;
        Self::create_shaped(
            name,
            ArenaShape {
                slots,
                image_bytes,
                meta_bytes,
            },
        )
    }

    /// Creates an arena with room for larger descriptions than usual.
    pub fn create_shaped(name: &str, shape: ArenaShape) -> Result<Self, ArenaError> {
        Self::make(name, shape.geometry()?)
    }

    /// Creates an arena of one window, of at most `window` bytes, for images of up to `image_bytes`.
    pub fn windowed(name: &str, image_bytes: u64, window: u64) -> Result<Self, ArenaError> {
        Self::windowed_with(name, image_bytes, window, 0)
    }

    /// Creates a windowed arena with at least `meta_bytes` for the description.
    pub fn windowed_with(name: &str, image_bytes: u64, window: u64, meta_bytes: u64) -> Result<Self, ArenaError> {
        let geometry = ArenaGeometry::windowed(image_bytes, window).ok_or(ArenaError::Window {
            image_bytes,
            window,
            least: least_window(image_bytes),
        })?;
        let slots = geometry.slots;
        let geometry = geometry
            .with_meta(meta_bytes)
            .ok_or(ArenaError::Size { slots, image_bytes })?;
        Self::make(name, geometry)
    }

    fn make(name: &str, geometry: ArenaGeometry) -> Result<Self, ArenaError> {
        let bytes = geometry.total();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create(name, flags).map_err(|errno| ArenaError::system("make a memory file", errno))?;
        ftruncate(&fd, bytes).map_err(|errno| ArenaError::system("size the memory file", errno))?;
        for range in geometry.in_place() {
            let length = range.end - range.start;
            let taken = fallocate(&fd, FallocateFlags::empty(), range.start, length);
            taken.map_err(|errno| ArenaError::Memory {
                bytes,
                source: errno.into(),
            })?;
        }
        fcntl_add_seals(&fd, SEALS).map_err(|errno| ArenaError::system("seal the memory file's size", errno))?;
        let file = File::from(fd);
        let header = |source| ArenaError::System {
            what: "write the arena's header",
            source,
        };
        file.write_all_at(&geometry.header(), 0).map_err(header)?;
        Self::over(file, geometry)
    }

    /// Maps an arena that another process created.
    pub fn map(fd: OwnedFd) -> Result<Self, ArenaError> {
        let (file, header) = sealed_file(fd)?;
        Self::sized(file, ArenaGeometry::from_header(&header)?)
    }

    /// Takes over the arena that an earlier agent created with the same shape, including its sealed images. Unfinished
    /// work of its ranks, which are gone or exiting, is discarded. Sealed images must be verified like any other copy.
    pub fn inherit(fd: OwnedFd, shape: ArenaShape) -> Result<Self, ArenaError> {
        let geometry = shape.geometry()?;
        let (file, header) = sealed_file(fd)?;
        if ArenaGeometry::from_header(&header)? != geometry {
            return Err(ArenaError::NotOne {
                problem: "has another shape than it was made with",
            });
        }
        let arena = Self::sized(file, geometry)?;
        for slot in 0..shape.slots {
            protocol::inherit(arena.word(slot)?);
        }
        Ok(arena)
    }

    fn sized(file: File, geometry: ArenaGeometry) -> Result<Self, ArenaError> {
        if file.metadata().map_err(unreadable)?.len() != geometry.total() {
            return Err(ArenaError::NotOne {
                problem: "has another size than its header says",
            });
        }
        Self::over(file, geometry)
    }

    fn over(file: File, geometry: ArenaGeometry) -> Result<Self, ArenaError> {
        let bytes = geometry.total();
        let length = usize::try_from(bytes).map_err(|_| ArenaError::Size {
            slots: geometry.slots,
            image_bytes: geometry.image_bytes,
        })?;
        let mapping = SharedMapping::new(file.as_fd(), length, geometry.in_place());
        let mapping = mapping.map_err(|source| ArenaError::Memory { bytes, source })?;
        Ok(Self {
            file,
            mapping,
            geometry,
            restoring: Mutex::default(),
        })
    }

    /// Returns the allocated memory: images, and the used parts of their description areas.
    pub fn held_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    pub fn geometry(&self) -> ArenaGeometry {
        self.geometry
    }

    /// Returns the state of a slot and the generation that set it.
    pub fn slot(&self, slot: u32) -> Result<(SlotState, Generation), ArenaError> {
        Ok(state::unpack(self.word(slot)?.load(Ordering::Acquire)))
    }

    /// Returns the slots in state `Empty`, lowest first.
    pub fn empty_slots(&self) -> Vec<u32> {
        let empty = |slot: &u32| matches!(self.slot(*slot), Ok((SlotState::Empty, _)));
        (0..self.geometry.slots).filter(empty).collect()
    }

    /// Returns the slot to fill next: the lowest empty one, else the first after `last` with a durable image, which is
    /// the oldest such image if slots are filled in turn. `None` while every image is needed.
    pub fn slot_to_fill(&self, last: Option<u32>) -> Option<u32> {
        let empty = self.empty_slots().first().copied();
        empty.or_else(|| self.in_turn(last, SlotState::Durable))
    }

    /// Returns the first slot after `last` with a sealed image that is not being written yet, so that a newer image may
    /// replace it.
    pub fn slot_to_replace(&self, last: Option<u32>) -> Option<u32> {
        // Bytes that passed through a window are already being written.
        let held = !self.geometry.is_windowed();
        self.in_turn(last, SlotState::Sealed).filter(|_| held)
    }

    fn in_turn(&self, last: Option<u32>, state: SlotState) -> Option<u32> {
        let slots = self.geometry.slots;
        let next = last.map_or(0, |last| last.wrapping_add(1) % slots);
        let is = |slot: &u32| self.slot(*slot).is_ok_and(|(is, _)| is == state);
        (next..slots).chain(0..next).find(is)
    }

    /// Protects the image that `generation` sealed in `slot` while it is written. Returns false if it is gone.
    pub fn begin_write(&self, slot: u32, generation: Generation) -> Result<bool, ArenaError> {
        Ok(protocol::begin_write(self.word(slot)?, generation))
    }

    /// Releases the protection of an image that is not the one to be written.
    pub fn leave(&self, slot: u32, generation: Generation) -> Result<(), ArenaError> {
        protocol::cancel_write(self.word(slot)?, generation);
        Ok(())
    }

    /// Marks the image that was being written as durable, so that it may be overwritten. Returns false if it is gone.
    pub fn make_durable(&self, slot: u32, generation: Generation) -> Result<bool, ArenaError> {
        Ok(protocol::make_durable(self.word(slot)?, generation))
    }

    /// Sets a slot to `Empty` in any state. For the owner of the image: the agent, or the rank after copying a restored
    /// image out. A fill in progress will fail to seal.
    pub fn release(&self, slot: u32) -> Result<(), ArenaError> {
        protocol::take_back(self.word(slot)?);
        Ok(())
    }

    /// Raises the lowest generation that may fill or seal (RG-3). It never decreases.
    pub fn raise_fence(&self, generation: Generation) {
        self.mapping.word(FENCE_AT).fetch_max(generation.0, Ordering::AcqRel);
    }

    /// Returns the lowest generation that may fill or seal.
    pub fn fence(&self) -> Generation {
        Generation(self.mapping.word(FENCE_AT).load(Ordering::Acquire))
    }

    /// Fills `out` from the image area of a slot in any state; does not verify the bytes.
    pub fn read_image(&self, slot: u32, at: u64, out: &mut [u8]) -> Result<(), ArenaError> {
        let place = self.geometry.image_place(slot, at, out.len() as u64)?;
        self.file
            .read_exact_at(out, place)
            .map_err(|source| ArenaError::System {
                what: "read the arena",
                source,
            })
    }

    fn word(&self, slot: u32) -> Result<&AtomicU64, ArenaError> {
        Ok(self.mapping.word(self.geometry.header_place(slot)?))
    }

    fn window(&self, slot: u32) -> Result<WindowView<'_>, ArenaError> {
        let header = self.geometry.header_place(slot)?;
        Ok(WindowView {
            filled: self.mapping.word(header + SLOT_FILLED_AT),
            freed: self.mapping.word(header + SLOT_FREED_AT),
            bytes: self.geometry.window,
        })
    }

    fn meta_word(&self, slot: u32) -> Result<&AtomicU64, ArenaError> {
        Ok(self.mapping.word(self.geometry.header_place(slot)? + SLOT_META_AT))
    }
}

/// Checks that a memory file has a sealed size, and reads its header.
fn sealed_file(fd: OwnedFd) -> Result<(File, [u8; HEADER_BYTES]), ArenaError> {
    let seals = fcntl_get_seals(&fd).map_err(|_| ArenaError::NotOne {
        problem: "is no memory file",
    })?;
    if !seals.contains(SEALS) {
        return Err(ArenaError::NotOne {
            problem: "is a memory file whose size is not sealed",
        });
    }
    let file = File::from(fd);
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).map_err(unreadable)?;
    Ok((file, header))
}

fn unreadable(source: io::Error) -> ArenaError {
    ArenaError::System {
        what: "read the arena's header",
        source,
    }
}

impl AsFd for Arena {
    /// Returns the descriptor to pass to the rank.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl From<ArenaError> for io::Error {
    fn from(error: ArenaError) -> Self {
        Self::other(error)
    }
}
