//! The data that a command is given: recognised by what it holds, or read as a mapping says.

use std::path::{Path, PathBuf};

use clap::Args;
use rankguard_console::error::CliError;
use rankguard_datasets::{Dataset, Error};

/// `--data` and `--mapping`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Data {
    /// A file or folder of data: a controller's journal or state directory, or anything that `rankguard dataset` reads
    #[arg(long, value_name = "PATH")]
    pub(crate) data: PathBuf,
    /// A TOML file that says which column of a CSV, JSON-lines or Parquet file is which of a table; `rankguard dataset info
    /// mapped` shows one
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
}

impl Data {
    /// Reads it.
    pub(crate) fn open(&self) -> Result<Dataset, CliError> {
        open(&self.data, self.mapping.as_deref())
    }
}

/// Reads a file or folder.
pub(crate) fn open(path: &Path, mapping: Option<&Path>) -> Result<Dataset, CliError> {
    let opened = match mapping {
        Some(mapping) => rankguard_datasets::open_mapped(path, mapping),
        None => rankguard_datasets::open(path),
    };
    opened.map_err(|problem| match problem {
        Error::Unknown { .. } => CliError::failure(
            problem.to_string(),
            "`rankguard dataset ls` lists what is known; a file of one's own wants --mapping FILE, see `rankguard dataset info mapped`",
        ),
        Error::Mapping { .. } => CliError::failure(
            "the mapping cannot be used",
            "`rankguard dataset info mapped` shows one, and the columns of each table",
        )
        .because(problem),
        Error::Several { .. } => CliError::failure(
            problem.to_string(),
            "give one of its folders; `rankguard dataset check` tells all of them",
        ),
        other => CliError::failure("the data cannot be read", "is the path right, and may it be read?").because(other),
    })
}
