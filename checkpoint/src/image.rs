//! Sources and destinations of image bytes: arena slots and plain memory.

use std::fs::File;
use std::io;
use std::ops::Range;

use crate::arena::kernel;
use crate::arena::mapping::SharedMapping;
use crate::format::ChunkDigest;

/// Source of image bytes.
pub trait ImageSource: Sync {
    /// Fills `out` with the bytes from offset `at` on.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Returns the image as mapped memory if it can be written from there without a copy.
    fn mapped(&self) -> Option<MappedImage<'_>> {
        None
    }
}

/// Destination of image bytes.
pub trait ImageSink {
    /// Returns the capacity in bytes.
    fn capacity(&self) -> u64;

    /// Returns the destinations of `ranges`, which are sorted, do not overlap and lie within the capacity; each is
    /// filled by one thread.
    fn split(&mut self, ranges: &[Range<u64>]) -> Vec<SinkRegion<'_>>;
}

impl ImageSource for &[u8] {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let part = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..out.len()));
        out.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ImageSink for &mut [u8] {
    fn capacity(&self) -> u64 {
        self.len() as u64
    }

    fn split(&mut self, ranges: &[Range<u64>]) -> Vec<SinkRegion<'_>> {
        let mut rest = &mut **self;
        let mut at = 0;
        let piece = |range: &Range<u64>| {
            let (_, after) = std::mem::take(&mut rest).split_at_mut((range.start - at) as usize);
            let (piece, after) = after.split_at_mut((range.end - range.start) as usize);
            (rest, at) = (after, range.end);
            SinkRegion(RegionMemory::Memory(piece))
        };
        ranges.iter().map(piece).collect()
    }
}

/// Separate memory blocks, one per requested box and in the same order: the tensors of a trainer.
#[derive(Debug)]
pub struct ScatteredBuffers<'a>(pub Vec<&'a mut [u8]>);

impl ImageSink for ScatteredBuffers<'_> {
    fn capacity(&self) -> u64 {
        self.0.iter().map(|part| part.len() as u64).sum()
    }

    /// A restore requests no range that spans two boxes, so each range lies in one block if a block is at least one
    /// box.
    fn split(&mut self, ranges: &[Range<u64>]) -> Vec<SinkRegion<'_>> {
        let mut pieces = Vec::with_capacity(ranges.len());
        let mut ranges = ranges;
        let mut end = 0;
        for part in &mut self.0 {
            let start = end;
            end += part.len() as u64;
            let here = ranges.partition_point(|range| range.end <= end);
            let (mine, rest) = ranges.split_at(here);
            let local: Vec<Range<u64>> = mine
                .iter()
                .map(|range| range.start - start..range.end - start)
                .collect();
            let mut rest_of_part = &mut **part;
            let mut at = 0;
            for range in local {
                let (_, after) = std::mem::take(&mut rest_of_part).split_at_mut((range.start - at) as usize);
                let (piece, after) = after.split_at_mut((range.end - range.start) as usize);
                (rest_of_part, at) = (after, range.end);
                pieces.push(SinkRegion(RegionMemory::Memory(piece)));
            }
            ranges = rest;
        }
        pieces
    }
}

/// Destination of some bytes of an image.
pub struct SinkRegion<'a>(RegionMemory<'a>);

enum RegionMemory<'a> {
    Memory(&'a mut [u8]),
    Mapped {
        mapping: &'a SharedMapping,
        at: usize,
        length: usize,
    },
}

impl<'a> SinkRegion<'a> {
    pub(crate) fn mapped(mapping: &'a SharedMapping, base: usize, range: &Range<u64>) -> Self {
        Self(RegionMemory::Mapped {
            mapping,
            at: base + range.start as usize,
            length: (range.end - range.start) as usize,
        })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            RegionMemory::Memory(memory) => memory.len(),
            RegionMemory::Mapped { length, .. } => *length,
        }
    }

    /// Writes `bytes`, which must have exactly the length of this piece.
    ///
    /// # Panics
    /// If the length differs.
    pub fn fill(mut self, bytes: &[u8]) {
        let _ = self.put(bytes);
    }

    /// Writes `bytes`, which must have exactly the length of this piece, and returns their digest.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> ChunkDigest {
        assert_eq!(bytes.len(), self.len(), "a piece is filled whole");
        match &mut self.0 {
            RegionMemory::Memory(memory) => kernel::copy(bytes, memory),
            RegionMemory::Mapped { mapping, at, .. } => mapping.copy_in(*at, bytes),
        }
    }

    /// Returns the memory if it is private.
    pub(crate) fn memory(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            RegionMemory::Memory(memory) => Some(memory),
            RegionMemory::Mapped { .. } => None,
        }
    }
}

impl std::fmt::Debug for SinkRegion<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piece").field("len", &self.len()).finish()
    }
}

/// Image in shared memory, or the window that an image passes through: byte `n` lies at `n` modulo the length. Its
/// owner may change it at any time, so its bytes are only digested and written.
#[derive(Clone, Copy)]
pub struct MappedImage<'a> {
    mapping: &'a SharedMapping,
    base: usize,
    length: usize,
}

impl<'a> MappedImage<'a> {
    pub(crate) fn new(mapping: &'a SharedMapping, base: usize, length: usize) -> Self {
        Self { mapping, base, length }
    }

    /// Returns the digest of a range of the image.
    pub(crate) fn digest(&self, range: &Range<u64>) -> ChunkDigest {
        let from = range.start as usize % self.length;
        let length = (range.end - range.start) as usize;
        let head = length.min(self.length - from);
        if head == length {
            return self.mapping.digest(self.base + from, length);
        }
        // The range wraps around the end of the window; at most one chunk per turn.
        let mut whole = vec![0; length];
        let (first, rest) = whole.split_at_mut(head);
        self.mapping.copy_out(self.base + from, first);
        self.mapping.copy_out(self.base, rest);
        kernel::digest(&whole)
    }

    /// Writes bytes from offset `at` on to the same offset of a file; returns the number written. The bytes must not
    /// wrap around the end of a window.
    pub(crate) fn write_to(&self, file: &File, at: u64, length: usize) -> io::Result<usize> {
        self.mapping
            .write_to(file, at, self.base + at as usize % self.length, length)
    }
}

impl std::fmt::Debug for MappedImage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedImage")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
