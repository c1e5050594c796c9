//! What a person adds to the built-in catalogue, by `--catalogue`.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use rankguard_faults::{Catalogue, CatalogueFile, CatalogueFilesError};

use crate::error::CliError;

/// What a person adds to the built-in catalogue.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CatalogueArgs {
    /// File that adds classes, signatures, codes or a taxonomy (TOML); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) catalogue: Vec<PathBuf>,
}

impl CatalogueArgs {
    /// The built-in catalogue, with the files of a person where there are any.
    pub(super) fn read(&self) -> Result<Cow<'static, Catalogue>, CliError> {
        let read = CatalogueFile::read(&self.catalogue, |path| fs::read_to_string(path));
        read.map(|(_, catalogue)| catalogue).map_err(|problem| match problem {
            CatalogueFilesError::Unread { path, source } => CliError::failure(
                format!("cannot read the catalogue file {}", path.display()),
                "--catalogue names a TOML file of classes, signatures, codes or one taxonomy",
            )
            .because(source),
            CatalogueFilesError::Wrong(mistakes) => CliError::usage(
                format!("the catalogue files do not hold together\n{mistakes}"),
                "each line names file, line and key",
            ),
        })
    }
}
