//! Native part of the Python package: saves and restores over addresses that Python passes, with the GIL released.
//!
//! `rankguard/` beside this folder is the package; it finds the tensors in the trainer's objects and passes name, box,
//! address and owner of each to this module. There is one class for the agent of the node ([`agent`]) and one for a
//! store in a directory ([`local`]); both are thin layers over `rankguard-rank`.
//!
//! Invariants: the GIL is never held during a copy, a wait or file work; Python objects are not accessed without it;
//! an owner is referenced for as long as its address is used; a wait ends with the handler of SIGINT ([`signals`]); a
//! fork uses no session of its parent ([`fork_guard`]). Only two files contain `unsafe`, `memory.rs` and `signals.rs`.
//!
//! Absent: the buffer protocol (not in the stable ABI of Python 3.9), and any knowledge of torch, numpy or JAX.

#![warn(missing_docs)]
#![deny(unsafe_code)]

mod agent;
mod conversions;
mod departure;
mod entry;
mod error;
mod fork_guard;
mod local;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod signals;

use pyo3::prelude::*;

/// Module `rankguard._rankguard`.
#[pymodule]
fn _rankguard(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RankguardError", module.py().get_type::<error::RankguardError>())?;
    module.add_class::<agent::Agent>()?;
    module.add_class::<departure::Departure>()?;
    module.add_class::<local::Local>()
}
