//! The Python package's native part: saves and restores over addresses that Python lends, with the GIL released.
//!
//! `rankguard/` beside this folder is the package; it finds the tensors in what the trainer hands over and tells this
//! module each one's name, box, address and owner. Here is one class for the agent of the node ([`agent`]) and one for a
//! store in a directory ([`local`]); both are thin over `rankguard-rank`.
//!
//! Invariants: the GIL is never held during a copy, a wait or file work; nothing of Python's is touched without it; an
//! owner is kept for as long as its address is used; a wait ends with the handler of SIGINT ([`signals`]); a fork uses no
//! session of its parent ([`fork_guard`]). `unsafe` stands in two files, `memory.rs` and `signals.rs`.
//!
//! Absent: the buffer protocol (not in the stable ABI of Python 3.9), and any knowledge of torch, numpy or JAX.

#![warn(missing_docs)]
#![deny(unsafe_code)]

mod agent;
mod entry;
mod error;
mod fork_guard;
mod keeper;
mod local;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod signals;

use pyo3::prelude::*;

/// The module.
#[pymodule]
fn _rankguard(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RankguardError", module.py().get_type::<error::RankguardError>())?;
    module.add_class::<agent::Agent>()?;
    module.add_class::<local::Local>()
}
