//! Offsets within an arena: plain arithmetic, all of it checked.

use std::ops::Range;

use crate::arena::ArenaError;
use crate::format::chunk_bytes_for;

/// Maximum number of slots of an arena.
pub const MAX_SLOTS: u32 = 64;

/// Maximum image size of a slot: 16 TiB.
const MAX_IMAGE_BYTES: u64 = 1 << 44;

const PAGE: u64 = 4096;

/// Size of a chunk in the description, bytes: its digest as text.
const CHUNK_DESCRIBED: u64 = 32;

/// Size of tensor table and rank state in a usual description, bytes; enough for more than a thousand tensors.
const TENSORS_DESCRIBED: u64 = 256 << 10;
const MAGIC: [u8; 8] = *b"RGARENA1";

/// Layout version with whole images in slots.
const VERSION: u32 = 2;

/// Layout version with windows; older ranks must not mistake a window for a slot.
const VERSION_WINDOWED: u32 = 3;

/// Length of the arena header, bytes, including the fence.
pub(super) const HEADER_BYTES: usize = 48;

/// Offset of the fence in the header page of the arena.
pub(super) const FENCE_AT: usize = 32;

/// Offset of the meta length in the header page of a slot.
pub(super) const SLOT_META_AT: usize = 8;

/// Offsets of the two window counters in the header page of a slot.
pub(super) const SLOT_FILLED_AT: usize = 16;
pub(super) const SLOT_FREED_AT: usize = 24;

/// Minimum size of a window for images that are larger than it: a few chunks.
pub const MIN_WINDOW_BYTES: u64 = 256 << 10;

/// Unit of a window: the large one if the window holds at least four of them, else the small one.
const PIECE: u64 = 1 << 20;
const SMALL_PIECE: u64 = 64 << 10;

/// Dimensions of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaGeometry {
    pub slots: u32,
    /// Size of the description area of a slot, bytes.
    pub meta_bytes: u64,
    /// Maximum image size, bytes.
    pub image_bytes: u64,
    /// Size of the image area of a slot that is a window, bytes; 0 if slots hold whole images.
    pub window: u64,
}

impl ArenaGeometry {
    /// Computes the geometry; `None` if out of bounds. The description area grows slowly with the image: tensor table
    /// and checksums grow, the rank state does not.
    pub(super) fn new(slots: u32, image_bytes: u64) -> Option<Self> {
        let image_bytes = image_bytes.checked_next_multiple_of(PAGE)?.max(PAGE);
        let meta_bytes = Self::usual_meta(image_bytes);
        Self {
            slots,
            meta_bytes,
            image_bytes,
            window: 0,
        }
        .checked()
    }

    /// Returns the usual size of the description area for images of this size, bytes.
    pub fn usual_meta(image_bytes: u64) -> u64 {
        (1 << 20) + (image_bytes / 512).next_multiple_of(PAGE)
    }

    /// Enlarges the description area to at least `meta_bytes` per slot. `None` if out of bounds.
    pub(super) fn with_meta(self, meta_bytes: u64) -> Option<Self> {
        let meta_bytes = meta_bytes.checked_next_multiple_of(PAGE)?.max(self.meta_bytes);
        Self { meta_bytes, ..self }.checked()
    }

    /// Computes the geometry of one window of at most `most` bytes, no larger than the image requires. `None` if out of
    /// bounds or too small for the chunks of this image.
    pub(super) fn windowed(image_bytes: u64, most: u64) -> Option<Self> {
        let whole = Self::new(1, image_bytes)?;
        let needs = whole.image_bytes.next_multiple_of(SMALL_PIECE);
        let piece = if most.min(needs) < 4 * PIECE {
            SMALL_PIECE
        } else {
            PIECE
        };
        let window = most.min(needs.next_multiple_of(piece)) / piece * piece;
        let sized = Self { window, ..whole };
        let passes = window >= whole.image_bytes || sized.passes(chunk_bytes_for(image_bytes));
        sized.checked().filter(|_| passes && window > 0)
    }

    /// True if a window of this size can pass a sequence of chunks of this size.
    pub(super) fn passes(self, chunk_bytes: u32) -> bool {
        window_for(chunk_bytes) <= self.window
    }

    fn checked(self) -> Option<Self> {
        let pages = self.meta_bytes.is_multiple_of(PAGE) && self.image_bytes.is_multiple_of(PAGE);
        let bounded = (1..=MAX_SLOTS).contains(&self.slots)
            && (PAGE..=MAX_IMAGE_BYTES).contains(&self.image_bytes)
            && (PAGE..=MAX_IMAGE_BYTES).contains(&self.meta_bytes);
        let pieces = self.window.is_multiple_of(self.piece()) && self.window <= MAX_IMAGE_BYTES;
        (pages && bounded && pieces).then_some(self)
    }

    /// True if images pass through the slots instead of being held.
    pub fn is_windowed(self) -> bool {
        self.window > 0
    }

    /// Returns the unit in which a window is filled, written and freed, bytes.
    pub(crate) fn piece(self) -> u64 {
        if self.window < 4 * PIECE { SMALL_PIECE } else { PIECE }
    }

    /// Returns the size of the image area of a slot, bytes.
    pub(crate) fn area(self) -> u64 {
        if self.is_windowed() {
            self.window
        } else {
            self.image_bytes
        }
    }

    pub(super) fn header(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        let version = if self.is_windowed() { VERSION_WINDOWED } else { VERSION };
        header[8..12].copy_from_slice(&version.to_le_bytes());
        header[12..16].copy_from_slice(&self.slots.to_le_bytes());
        header[16..24].copy_from_slice(&self.meta_bytes.to_le_bytes());
        header[24..32].copy_from_slice(&self.image_bytes.to_le_bytes());
        header[40..48].copy_from_slice(&self.window.to_le_bytes());
        header
    }

    pub(super) fn from_header(header: &[u8; HEADER_BYTES]) -> Result<Self, ArenaError> {
        let refuse = |problem| Err(ArenaError::NotOne { problem });
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| header[at + i]));
        if header[..8] != MAGIC {
            return refuse("does not begin with an arena's magic word");
        }
        let stated = Self {
            slots: u32_at(12),
            meta_bytes: u64_at(16),
            image_bytes: u64_at(24),
            window: u64_at(40),
        };
        if u32_at(8)
            != if stated.is_windowed() {
                VERSION_WINDOWED
            } else {
                VERSION
            }
        {
            return refuse("holds an arena of another version");
        }
        stated
            .checked()
            .map_or_else(|| refuse("states a shape out of bounds"), Ok)
    }

    /// Returns the length of the whole arena. At most 64 slots of 32 TiB: cannot overflow.
    pub fn total(self) -> u64 {
        PAGE + u64::from(self.slots) * self.stride()
    }

    /// Returns the ranges to allocate before the first fill: all but the part of the description areas that few images
    /// need. The areas have the maximum size of a description; most descriptions are a third of it or less.
    pub(super) fn in_place(self) -> impl Iterator<Item = Range<u64>> {
        let chunks = self.image_bytes.div_ceil(chunk_bytes_for(self.image_bytes).into());
        let usual = (chunks * CHUNK_DESCRIBED + TENSORS_DESCRIBED).next_multiple_of(PAGE);
        let described = PAGE + usual.min(self.meta_bytes);
        (0..u64::from(self.slots)).flat_map(move |slot| {
            let begin = PAGE + slot * self.stride();
            // The arena header precedes the header of the first slot.
            let header = if slot == 0 { 0 } else { begin };
            [
                header..begin + described,
                begin + PAGE + self.meta_bytes..begin + self.stride(),
            ]
        })
    }

    fn stride(self) -> u64 {
        PAGE + self.meta_bytes + self.area()
    }

    fn slot_place(self, slot: u32) -> Result<u64, ArenaError> {
        if slot >= self.slots {
            return Err(ArenaError::NoSlot {
                slot,
                slots: self.slots,
            });
        }
        Ok(PAGE + u64::from(slot) * self.stride())
    }

    /// Returns the offset of a slot header in the mapping.
    pub(super) fn header_place(self, slot: u32) -> Result<usize, ArenaError> {
        self.slot_place(slot).map(|place| place as usize)
    }

    /// Returns the offset of the description area of a slot, checked for `bytes` bytes.
    pub(super) fn meta_place(self, slot: u32, bytes: u64) -> Result<u64, ArenaError> {
        within(0, bytes, self.meta_bytes)?;
        Ok(self.slot_place(slot)? + PAGE)
    }

    /// Returns the offset of byte `at` in the image area of a slot, checked for `bytes` bytes.
    pub(super) fn image_place(self, slot: u32, at: u64, bytes: u64) -> Result<u64, ArenaError> {
        within(at, bytes, self.area())?;
        Ok(self.slot_place(slot)? + PAGE + self.meta_bytes + at)
    }
}

/// Returns the smallest window that images of this size can pass through, bytes.
pub fn least_window(image_bytes: u64) -> u64 {
    window_for(chunk_bytes_for(image_bytes))
}

/// Returns the smallest window for chunks of this size, bytes: while one is written, others are copied.
pub(super) fn window_for(chunk_bytes: u32) -> u64 {
    (4 * u64::from(chunk_bytes)).max(MIN_WINDOW_BYTES)
}

fn within(at: u64, bytes: u64, capacity: u64) -> Result<(), ArenaError> {
    if at.checked_add(bytes).is_some_and(|end| end <= capacity) {
        Ok(())
    } else {
        Err(ArenaError::Outside { at, bytes, capacity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_was_made() {
        let geometry = ArenaGeometry::new(3, 10_000).expect("in bounds");
        assert_eq!(geometry.image_bytes, 12_288);
        assert_eq!(
            ArenaGeometry::from_header(&geometry.header()).expect("own header"),
            geometry
        );
    }

    #[test]
    fn slots_do_not_overlap_and_end_where_the_arena_ends() {
        let geometry = ArenaGeometry::new(3, 10_000).expect("in bounds");
        let end = |slot| geometry.image_place(slot, 0, geometry.image_bytes).expect("whole") + geometry.image_bytes;
        assert_eq!(end(0), geometry.header_place(1).expect("slot 1") as u64);
        assert_eq!(end(2), geometry.total());
        assert!(geometry.header_place(3).is_err());
        assert!(geometry.image_place(0, 12_288, 1).is_err());
        assert!(geometry.image_place(0, u64::MAX, 2).is_err());
    }

    #[test]
    fn what_is_put_in_place_is_all_but_the_rest_of_descriptions() {
        let ranges: Vec<_> = ArenaGeometry::new(2, 1 << 30).expect("in bounds").in_place().collect();
        let geometry = ArenaGeometry::new(2, 1 << 30).expect("in bounds");
        let images: Vec<_> = [0, 1]
            .map(|slot| geometry.image_place(slot, 0, 1 << 30).expect("whole"))
            .map(|at| at..at + (1 << 30))
            .to_vec();
        assert_eq!([&ranges[1], &ranges[3]], [&images[0], &images[1]]);
        assert_eq!(ranges[0].start, 0);
        assert_eq!(ranges[2].start, geometry.header_place(1).expect("slot 1") as u64);
        assert_eq!(
            ranges[0].end - 2 * PAGE,
            (512 << 10) + (256 << 10),
            "16,384 digests and the tensors"
        );
        let small: u64 = ArenaGeometry::new(1, 1)
            .expect("in bounds")
            .in_place()
            .map(|range| range.end - range.start)
            .sum();
        assert!(small < 300 << 10, "{small}");
    }

    #[test]
    fn a_window_is_whole_pieces_and_no_larger_than_its_image() {
        const KIB: u64 = 1 << 10;
        for (image, most, window) in [
            (100 << 20, 8 << 20, Some(8 << 20)),
            (100 << 20, (9 << 20) - 1, Some(8 << 20)),
            (100 << 20, 300 * KIB, Some(256 * KIB)),
            (100 << 20, 255 * KIB, None),
            (10, 8 << 20, Some(64 * KIB)),
            (5 << 20, 64 << 20, Some(5 << 20)),
            // Chunks of 32 MiB do not pass through 16 MiB.
            (2 << 40, 16 << 20, None),
            (2 << 40, 128 << 20, Some(128 << 20)),
            (u64::MAX, 8 << 20, None),
        ] {
            let geometry = ArenaGeometry::windowed(image, most);
            assert_eq!(geometry.map(|it| it.window), window, "{image} through {most}");
            if let Some(geometry) = geometry {
                assert_eq!(
                    ArenaGeometry::from_header(&geometry.header()).expect("own header"),
                    geometry
                );
                assert!(geometry.image_place(0, geometry.window, 1).is_err());
            }
        }
    }

    #[test]
    fn a_header_out_of_bounds_is_refused() {
        let good = ArenaGeometry::new(3, 10_000).expect("in bounds").header();
        for (at, value) in [
            (0, 0),
            (8, 9),
            (12, 255),
            (15, 1),
            (16, 1),
            (23, 255),
            (24, 1),
            (31, 255),
            (40, 1),
            (41, 1),
        ] {
            let mut bad = good;
            bad[at] = value;
            assert!(ArenaGeometry::from_header(&bad).is_err(), "byte {at} = {value}");
        }
        assert_eq!(ArenaGeometry::new(0, 1), None);
        assert_eq!(ArenaGeometry::new(MAX_SLOTS + 1, 1), None);
        assert_eq!(ArenaGeometry::new(1, u64::MAX), None);
        assert_eq!(ArenaGeometry::new(1, MAX_IMAGE_BYTES + 1), None);
    }
}
