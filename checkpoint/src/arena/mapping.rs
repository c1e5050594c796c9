//! The shared mapping, and all the `unsafe` of this crate.
//!
//! Another process may write to these pages at any moment, so no reference to their bytes is ever made: bytes go in by
//! raw copy, come out by `pread` on the file (see [`super::Arena::read_image`]), and the few words that both sides race
//! for are atomics.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::format::Crc32c;

/// Bytes that are copied and then summed while they are still in the nearest cache.
const BLOCK: usize = 16 << 10;

/// A shared, writable mapping of a whole file whose size is sealed.
pub(super) struct Mapping {
    base: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping is plain memory that stays where it is until drop. All access goes through the methods below,
// which make no references to its bytes other than to atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; concurrent `write` to the same bytes is excluded by the slot's state word, and would mix bytes, not
// break memory safety of this program, as nothing here reads them.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes and puts every page in place.
    pub(super) fn new(fd: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address the kernel chooses; it overlaps nothing of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base).expect("the kernel maps nothing at address zero unless asked to");
        // SAFETY: exactly the range just mapped; populating changes no content. Kernels before 5.14 do not know the
        // advice; then pages are mapped at first touch, which is slower and nothing else.
        let populated = unsafe { madvise(base.as_ptr(), length, Advice::LinuxPopulateWrite) };
        let mapping = Self { base, length };
        match populated {
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(mapping),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The atomic word at `at`.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at < self.length && self.length - at >= 8,
            "a word lies in the mapping"
        );
        // SAFETY: in bounds and aligned (the base is page-aligned); every process uses this word as an atomic only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().byte_add(at).cast()) }
    }

    /// Copies `bytes` to `at`.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(
            at <= self.length && self.length - at >= bytes.len(),
            "a copy lies in the mapping"
        );
        // SAFETY: the destination is in bounds; the source is a live slice, which cannot overlap a mapping that no
        // slice is ever made of.
        unsafe {
            let to = self.base.as_ptr().byte_add(at).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies `bytes` to `at` and takes them into `crc`, each block while it is warm. The sum is over the source: it
    /// says what the rank meant to write.
    pub(super) fn write_summed(&self, at: usize, bytes: &[u8], crc: &mut Crc32c) {
        let mut to = at;
        for block in bytes.chunks(BLOCK) {
            self.write(to, block);
            crc.update(block);
            to += block.len();
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; no reference outlives `self`. It can fail only for a range that
        // is no mapping, which would be a bug, and then there is nothing to free.
        let _ = unsafe { munmap(self.base.as_ptr(), self.length) };
    }
}
