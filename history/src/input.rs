//! The data that a command is given: recognised by what it holds, or read as a mapping says.

use std::path::{Path, PathBuf};

use clap::Args;
use rankguard_console::error::CliError;
use rankguard_datasets::{Dataset, Error};

/// `--data` and how it is to be read.
#[derive(Debug, Clone, Args)]
pub(crate) struct Data {
    /// A file or folder of data: a controller's journal or state directory, or anything that `rankguard dataset` reads
    #[arg(long, value_name = "PATH")]
    pub(crate) data: PathBuf,
    /// How to read it.
    #[command(flatten)]
    mapping: Mapping,
}

impl Data {
    /// Reads it.
    pub(crate) fn open(&self) -> Result<Dataset, CliError> {
        self.mapping.open(&self.data)
    }
}

/// `--mapping`, beside an argument `data`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Mapping {
    /// A TOML file that says which column of a CSV, JSON-lines or Parquet file is which of a table; `rankguard dataset info
    /// mapped` shows one
    #[arg(id = "mapping", long = "mapping", value_name = "FILE", requires = "data")]
    file: Option<PathBuf>,
}

impl Mapping {
    /// Of this file.
    pub(crate) fn of(file: PathBuf) -> Self {
        Self { file: Some(file) }
    }

    /// Whether nobody says what the columns are.
    pub(crate) fn is_absent(&self) -> bool {
        self.file.is_none()
    }

    /// Reads a file or folder.
    pub(crate) fn open(&self, path: &Path) -> Result<Dataset, CliError> {
        let opened = match &self.file {
            Some(mapping) => rankguard_datasets::open_mapped(path, mapping),
            None => rankguard_datasets::open(path),
        };
        opened.map_err(refused)
    }
}

fn refused(problem: Error) -> CliError {
    match problem {
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
    }
}
