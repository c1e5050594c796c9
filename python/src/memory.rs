//! Memory that Python passes by address.
//!
//! The stable ABI of Python 3.9 has no buffer protocol, and tensors of other libraries implement it differently, so
//! the Python side passes address and length together with the owning object, which keeps the memory in place.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Memory of a Python object.
#[derive(Debug)]
pub(crate) struct BorrowedMemory {
    address: usize,
    bytes: usize,
    /// Keeps the memory in place.
    _owner: Arc<Py<PyAny>>,
}

impl BorrowedMemory {
    /// Wraps memory at `address`. The caller guarantees that `address` and `bytes` are those that `owner` reported. An
    /// address of zero is accepted only for zero bytes.
    pub(crate) fn new(address: usize, bytes: usize, owner: Py<PyAny>) -> PyResult<Self> {
        if bytes > 0 && (address == 0 || address.checked_add(bytes).is_none()) || bytes > isize::MAX as usize {
            return Err(PyValueError::new_err(format!(
                "{bytes} bytes at address {address:#x} are no memory"
            )));
        }
        Ok(Self {
            address,
            bytes,
            _owner: Arc::new(owner),
        })
    }

    /// Returns the bytes for writing.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the owner lives as long as `self` and reported address and length of memory that it permits to write
        // (the Python side refuses read-only arrays); `&mut self` prevents concurrent reads by this program.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl AsRef<[u8]> for BorrowedMemory {
    fn as_ref(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the owner lives as long as `self` and reported address and length of memory that is initialised.
        // Python code may write to it from another thread against the documentation; the copy is then useless to the
        // trainer, but every pattern of bytes is a valid `u8`, and this crate never branches on bytes that it reads
        // twice.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }
}
