//! Data arguments of a command: recognised by content, or read by a mapping.

use std::path::{Path, PathBuf};

use clap::Args;
use rankguard_console::error::CliError;
use rankguard_datasets::{Dataset, Error};

/// Arguments `--data` and `--mapping`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// File or folder of data: a controller's journal or state directory, or anything that `rankguard dataset` reads
    #[arg(long, value_name = "PATH")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    mapping: MappingArgs,
}

impl DataArgs {
    pub(crate) fn open(&self) -> Result<Dataset, CliError> {
        self.mapping.open(&self.data)
    }
}

/// Argument `--mapping`, for commands with an argument `data`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MappingArgs {
    /// TOML file that maps the columns of a CSV, JSON-lines or Parquet file to a table; see
    /// `rankguard dataset info mapped`
    #[arg(id = "mapping", long = "mapping", value_name = "FILE", requires = "data")]
    file: Option<PathBuf>,
}

impl MappingArgs {
    /// Creates the argument from a file.
    pub(crate) fn of(file: PathBuf) -> Self {
        Self { file: Some(file) }
    }

    /// Returns true if no mapping is given.
    pub(crate) fn is_absent(&self) -> bool {
        self.file.is_none()
    }

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
            "`rankguard dataset ls` lists known formats; other files require --mapping FILE, see `rankguard dataset info mapped`",
        ),
        Error::Mapping { .. } => CliError::failure(
            "cannot use the mapping",
            "`rankguard dataset info mapped` shows an example, and the columns of each table",
        )
        .because(problem),
        Error::Several { .. } => CliError::failure(
            problem.to_string(),
            "select one of its folders; `rankguard dataset check PATH` lists them",
        ),
        other => CliError::failure(
            "cannot read the data",
            "check the path and the permissions of this user",
        )
        .because(other),
    }
}
