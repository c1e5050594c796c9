//! Errors as Python sees them.

use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rankguard_model::with_causes;

create_exception!(
    rankguard,
    RankguardError,
    PyRuntimeError,
    "The agent or the store did not do what it was asked; the message says what and why."
);

/// An error with everything below it, on one line.
pub(crate) fn raise(error: &dyn std::error::Error) -> PyErr {
    RankguardError::new_err(with_causes(error))
}
