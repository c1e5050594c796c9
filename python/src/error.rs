//! Errors as Python sees them.

use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

create_exception!(
    _rankguard,
    RankguardError,
    PyRuntimeError,
    "The agent or the store did not do what it was asked; the message says what and why."
);

/// An error with everything below it, on one line.
pub(crate) fn raise(error: &dyn std::error::Error) -> PyErr {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let next = cause.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        below = cause.source();
    }
    RankguardError::new_err(text)
}
