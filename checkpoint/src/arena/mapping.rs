//! Shared memory mapping of an arena.
//!
//! Another process may write to these pages at any time, so no reference to them is read: bytes are moved by raw
//! copies, digested by raw loads and written to files by system calls that take their address, and the few words that
//! both sides compete for are atomics.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::kernel;
use crate::format::ChunkDigest;

/// Shared, writable mapping of a whole file with a sealed size.
pub(crate) struct SharedMapping {
    base: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping is plain memory at a fixed address until drop. All access goes through the methods below, which
// create no references to its bytes other than to atomics.
unsafe impl Send for SharedMapping {}
// SAFETY: as above; concurrent `write` to the same bytes is excluded by the slot's state word, and would mix bytes, not
// break memory safety of this program, as nothing here reads them.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `length` bytes and populates the pages of the ranges in `touched`.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        length: usize,
        touched: impl Iterator<Item = Range<u64>>,
    ) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address the kernel chooses; it overlaps nothing of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base).expect("the kernel maps nothing at address zero unless asked to");
        let mapping = Self { base, length };
        // A forked child of a rank (a data loader worker) must not map the arena or retain it.
        unsafe { madvise(mapping.base.as_ptr(), length, Advice::LinuxDontFork) }?;
        for range in touched {
            mapping.touch(range.start as usize, (range.end - range.start) as usize)?;
        }
        Ok(mapping)
    }

    /// Populates the pages of `length` bytes at `at`.
    fn touch(&self, at: usize, length: usize) -> io::Result<()> {
        self.check(at, length);
        // SAFETY: in bounds; populating changes no content. Kernels before 5.14 do not know the advice; then pages are
        // mapped at first touch, which is slower and nothing else.
        match unsafe { madvise(self.place(at).cast(), length, Advice::LinuxPopulateWrite) } {
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the atomic word at `at`.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at < self.length && self.length - at >= 8,
            "a word lies in the mapping"
        );
        // SAFETY: in bounds and aligned (the base is page-aligned); every process uses this word as an atomic only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().byte_add(at).cast()) }
    }

    fn check(&self, at: usize, length: usize) {
        assert!(
            at <= self.length && self.length - at >= length,
            "what is touched lies in the mapping"
        );
    }

    fn place(&self, at: usize) -> *mut u8 {
        self.base.as_ptr().cast::<u8>().wrapping_add(at)
    }

    /// Copies `bytes` to `at`; returns the digest of the source, that is, of the bytes the rank intended to write.
    pub(crate) fn copy_in(&self, at: usize, bytes: &[u8]) -> ChunkDigest {
        self.check(at, bytes.len());
        // SAFETY: the destination is in bounds; the source is a live slice, which cannot overlap a mapping that no
        // slice for reading is ever made of.
        unsafe { kernel::copy_raw(bytes.as_ptr(), self.place(at), bytes.len()) }
    }

    /// Copies bytes at `at` out; returns the digest of the copy.
    pub(crate) fn copy_out(&self, at: usize, out: &mut [u8]) -> ChunkDigest {
        self.check(at, out.len());
        // SAFETY: the source is in bounds; the destination is an exclusive slice of private memory.
        unsafe { kernel::copy_raw(self.place(at), out.as_mut_ptr(), out.len()) }
    }

    /// Zeroes `length` bytes at `at`.
    pub(crate) fn zero(&self, at: usize, length: usize) {
        self.check(at, length);
        // SAFETY: in bounds, and no reference points there.
        unsafe { std::ptr::write_bytes(self.place(at), 0, length) }
    }

    /// Returns the digest of `length` bytes at `at`.
    pub(crate) fn digest(&self, at: usize, length: usize) -> ChunkDigest {
        self.check(at, length);
        // SAFETY: in bounds.
        unsafe { kernel::digest_raw(self.place(at), length) }
    }

    /// Writes `length` bytes at `at` to a file, without a copy if the file was opened for direct I/O; returns the
    /// number written.
    pub(crate) fn write_to(&self, file: impl AsFd, file_at: u64, at: usize, length: usize) -> io::Result<usize> {
        self.check(at, length);
        // SAFETY: in bounds. Another process may change these bytes, so the slice goes nowhere but into the system
        // call, of which the compiler knows nothing; no instruction of this program reads through it.
        let bytes = unsafe { std::slice::from_raw_parts(self.place(at), length) };
        Ok(rustix::io::pwrite(file, bytes, file_at)?)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; no reference outlives `self`. It can fail only for a range that
        // is no mapping, which would be a bug, and then there is nothing to free.
        let _ = unsafe { munmap(self.base.as_ptr(), self.length) };
    }
}
