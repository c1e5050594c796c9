//! Memory that Python lends by address, and all the `unsafe` of this crate.
//!
//! The stable ABI of Python 3.9 has no buffer protocol, and tensors of other libraries have their own ideas of it, so the
//! Python side tells address and length of what it holds and hands the holder over, which keeps the memory in place.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Memory of some Python object.
#[derive(Debug)]
pub(crate) struct Lent {
    address: usize,
    bytes: usize,
    /// Keeps the memory where it is.
    _owner: Arc<Py<PyAny>>,
}

impl Lent {
    /// The caller answers for `address` and `bytes`: they are what `owner` itself told. An address of zero is refused for
    /// anything but nothing.
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

    /// The bytes, to write to.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the owner lives as long as `self` and told address and length of memory that it lets others write to
        // (the Python side refuses read-only arrays); `&mut self` keeps this program from reading it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the owner lives as long as `self` and told address and length of memory that is initialised. Python code
        // may write to it from another thread although it is told not to; what is then copied is of no use to the trainer,
        // but every pattern of bytes is a valid `u8`, and nothing here branches on what it reads twice.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }
}
