//! Private memory for transfers that bypass the page cache, backed by huge pages if the system provides them.
//!
//! A device needs the address of every physical piece of a transfer. With small scattered pages a read of 4 MiB is a
//! thousand pieces and several requests, since a request takes a few hundred; with huge pages it is two pieces. The
//! same reads of the same file took less than half the time in a measurement. Memory of its own mapping is also
//! returned completely on drop, which an allocator does not guarantee.
//!
//! For a few buffers only: if memory is fragmented, the kernel makes huge pages by moving small ones, and a GiB of them
//! cost four times as much as in small pages.

use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size of a huge page. On systems with another size the advice below has less effect but does no harm.
const HUGE: usize = 2 << 20;

/// Zeroed memory, aligned to a page, and to a huge page if it is that long.
#[derive(Debug)]
pub(crate) struct AlignedPages {
    /// Base of the whole mapping.
    base: NonNull<c_void>,
    mapped: usize,
    /// First byte in use.
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is plain memory that this value alone owns.
unsafe impl Send for AlignedPages {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for AlignedPages {}

impl AlignedPages {
    /// Maps memory for `length` bytes; no page is touched yet.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let slack = if length < HUGE { 0 } else { HUGE };
        let mapped = length.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address the kernel chooses; it overlaps nothing of ours.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, access, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base).expect("the kernel maps nothing at address zero unless asked to");
        let skipped = match slack {
            0 => 0,
            _ => base.as_ptr().cast::<u8>().align_offset(HUGE),
        };
        // SAFETY: less than a huge page is skipped, and one more than `length` was mapped where any is.
        let start = unsafe { base.cast::<u8>().add(skipped) };
        // SAFETY: within the range just mapped; the advice changes no content. A kernel without huge pages refuses it,
        // and then the pages are small.
        let _ = unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxHugepage) };
        Ok(Self {
            base,
            mapped,
            start,
            length,
        })
    }
}

impl Deref for AlignedPages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes of the mapping, zeroed by the kernel, and changed only through `deref_mut`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedPages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for AlignedPages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; no reference outlives `self`. It can fail only for a range that is
        // no mapping, which would be a bug, and then there is nothing to free.
        let _ = unsafe { munmap(self.base.as_ptr(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_whole_and_aligned_at_every_length() {
        for (length, aligned) in [(0, 1), (1, 4096), (HUGE - 1, 4096), (HUGE, HUGE), (2 * HUGE + 5, HUGE)] {
            let mut pages = AlignedPages::new(length).expect("a few MiB of memory");
            assert_eq!((pages.len(), pages.as_ptr().addr() % aligned), (length, 0));
            assert!(pages.iter().all(|byte| *byte == 0));
            pages.fill(7);
            assert!(pages.iter().all(|byte| *byte == 7));
        }
        assert!(AlignedPages::new(usize::MAX).is_err());
    }
}
