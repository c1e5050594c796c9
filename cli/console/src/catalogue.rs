//! Catalogue files that extend the built-in catalogue (`--catalogue`).

use std::borrow::Cow;
use std::path::PathBuf;

use clap::Args;
use rankguard_faults::{Catalogue, CatalogueFile, CatalogueFilesError};
use rankguard_files::read_text;

use crate::error::CliError;

/// Options that extend the built-in catalogue.
#[derive(Debug, Clone, Default, Args)]
pub struct CatalogueArgs {
    /// File that adds classes, signatures, codes or a taxonomy (TOML); may be repeated
    #[arg(long, value_name = "FILE")]
    pub catalogue: Vec<PathBuf>,
}

impl CatalogueArgs {
    /// Returns the built-in catalogue, extended by the files of `--catalogue`.
    pub fn read(&self) -> Result<Cow<'static, Catalogue>, CliError> {
        read(&self.catalogue)
    }
}

/// Maximum size of a catalogue file, in bytes.
const FILE_BYTES: u64 = 64 << 20;

/// Returns the built-in catalogue, extended by `files`; borrowed if there are none.
pub fn read(files: &[PathBuf]) -> Result<Cow<'static, Catalogue>, CliError> {
    let read = CatalogueFile::read(files, |path| read_text(path, FILE_BYTES));
    read.map(|(_, catalogue)| catalogue).map_err(|problem| match problem {
        CatalogueFilesError::Unread { path, source } => CliError::failure(
            format!("cannot read the catalogue file {}", path.display()),
            "expected a TOML file with classes, signatures, codes or one taxonomy",
        )
        .because(source),
        CatalogueFilesError::Wrong(mistakes) => CliError::usage(
            format!("cannot use the catalogue files\n{mistakes}"),
            "correct the listed lines",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CommandExit;

    #[test]
    fn a_missing_file_is_named() {
        let files = CatalogueArgs {
            catalogue: vec!["no/such/file.toml".into()],
        };
        let problem = files.read().expect_err("there is no such file");
        assert_eq!(problem.exit(), CommandExit::Failure);
        assert!(problem.lines().contains("no/such/file.toml"), "{}", problem.lines());
    }
}
