//! Errors that prevent the opening of a data set; lesser ones are a [`crate::InputProblem`].

use std::io;
use std::path::PathBuf;

/// Error of opening a data set, table or column.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path cannot be listed or opened.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// No file below the path belongs to a known source.
    #[error("{path} holds nothing that is known here")]
    Unknown { path: PathBuf },
    /// The folder contains data sets of several sources, each in a separate folder.
    #[error("{path} is a folder of data sets: {sources}")]
    Several { path: PathBuf, sources: String },
    /// The data set has no such table.
    #[error("{source_name} has no table {table}")]
    NoTable {
        source_name: &'static str,
        table: &'static str,
    },
    /// The table has no such column, or not of this type.
    #[error("table {table}: column {column}")]
    Column {
        table: &'static str,
        column: String,
        /// Error of the frame.
        source: polars::error::PolarsError,
    },
    /// The mapping file is not valid.
    #[error("{path}: {what}")]
    Mapping {
        /// Path of the mapping file.
        path: PathBuf,
        /// Mistake, with its line or key.
        what: String,
    },
    /// A table cannot be written.
    #[error("cannot write {path}: {what}")]
    Write { path: PathBuf, what: String },
}
