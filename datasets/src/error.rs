//! What keeps a data set from being opened at all; everything smaller is a [`crate::Problem`].

use std::io;
use std::path::PathBuf;

/// Why there is no data set, table or column.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path cannot be listed or opened.
    #[error("cannot read {path}")]
    Read {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing below the path looks like a source that is known here.
    #[error("{path} holds nothing that is known here")]
    Unknown {
        /// The path.
        path: PathBuf,
    },
    /// The folder holds data sets of several sources, each in a folder of its own.
    #[error("{path} is a folder of data sets: {sources}")]
    Several {
        /// The path.
        path: PathBuf,
        /// Their sources.
        sources: String,
    },
    /// The data set has no such table.
    #[error("{source_name} has no table {table}")]
    NoTable {
        /// The source.
        source_name: &'static str,
        /// The table.
        table: &'static str,
    },
    /// The table has no such column, or not of this kind.
    #[error("table {table}: column {column}")]
    Column {
        /// The table.
        table: &'static str,
        /// The column.
        column: String,
        /// What the frame said.
        source: polars::error::PolarsError,
    },
    /// A mapping file is wrong.
    #[error("{path}: {what}")]
    Mapping {
        /// The mapping file.
        path: PathBuf,
        /// What is wrong in it, with its line or key.
        what: String,
    },
    /// A table cannot be written.
    #[error("cannot write {path}: {what}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        what: String,
    },
}
