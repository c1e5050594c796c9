//! Errors as Python exceptions.

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

/// Converts an error with all its causes to one line.
pub(crate) fn raise(error: &dyn std::error::Error) -> PyErr {
    RankguardError::new_err(with_causes(error))
}
