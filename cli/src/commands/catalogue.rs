//! What a person adds to the built-in catalogue, by `--catalogue`.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use rankguard_faults::Catalogue;

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
        if self.catalogue.is_empty() {
            return Ok(Cow::Borrowed(Catalogue::builtin()));
        }
        let mut files = Vec::new();
        for path in &self.catalogue {
            let text = fs::read_to_string(path).map_err(|problem| {
                CliError::failure(
                    format!("cannot read the catalogue file {}", path.display()),
                    "--catalogue names a TOML file of classes, signatures, codes or one taxonomy",
                )
                .because(problem)
            })?;
            files.push((path.display().to_string(), text));
        }
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        Catalogue::with_files(&files).map(Cow::Owned).map_err(|mistakes| {
            CliError::usage(
                format!("the catalogue files do not hold together\n{mistakes}"),
                "each line names file, line and key",
            )
        })
    }
}
