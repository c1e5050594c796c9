//! Catalogue files that a user adds to the built-in ones. The caller supplies the file reader; this crate does no
//! file I/O.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Catalogue;
use crate::mistake::CatalogueError;

/// User catalogue file, with the text that was read. A stored copy rebuilds the same catalogue even if the file
/// changes later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueFile {
    /// File name; repeated in mistakes.
    pub name: String,
    /// File text (TOML).
    pub text: String,
}

/// Error of reading or joining user catalogue files.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueFilesError {
    #[error("{path}: cannot be read: {source}")]
    Unread { path: PathBuf, source: io::Error },
    /// The files contain mistakes; one line for each, with file, line and key.
    #[error(transparent)]
    Wrong(#[from] CatalogueError),
}

impl CatalogueFile {
    /// Reads the files at `paths` with `read` and returns them with the catalogue they build.
    pub fn read(
        paths: &[PathBuf],
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<(Vec<Self>, Cow<'static, Catalogue>), CatalogueFilesError> {
        let file = |path: &PathBuf| match read(path) {
            Ok(text) => Ok(Self {
                name: path.display().to_string(),
                text,
            }),
            Err(source) => Err(CatalogueFilesError::Unread {
                path: path.clone(),
                source,
            }),
        };
        let files = paths.iter().map(file).collect::<Result<Vec<_>, _>>()?;
        let catalogue = Self::join(&files)?;
        Ok((files, catalogue))
    }

    /// Builds the built-in catalogue joined with these files; reports all mistakes at once, each with file, line and
    /// key.
    pub fn join(files: &[Self]) -> Result<Cow<'static, Catalogue>, CatalogueError> {
        if files.is_empty() {
            return Ok(Cow::Borrowed(Catalogue::builtin()));
        }
        let texts = files.iter().map(|file| (file.name.as_str(), file.text.as_str()));
        Catalogue::with_files(&texts.collect::<Vec<_>>()).map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: &str = "[[class]]\nid = \"own-fault\"\nparent = \"gpu-xid\"\n";

    fn read(path: &Path) -> io::Result<String> {
        match path.to_str() {
            Some("empty.toml") => Ok(String::new()),
            Some("wrong.toml") => Ok(CLASS.replace("class", "clas")),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn problem(paths: &[&str]) -> String {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        CatalogueFile::read(&paths, read)
            .expect_err("it cannot be used")
            .to_string()
    }

    #[test]
    fn no_files_are_the_builtin_catalogue_and_those_that_are_read_are_kept() {
        let (files, catalogue) = CatalogueFile::read(&[], read).expect("nothing is read");
        assert!(files.is_empty() && matches!(catalogue, Cow::Borrowed(_)));
        let (files, catalogue) = CatalogueFile::read(&["empty.toml".into()], read).expect("it adds nothing");
        assert_eq!(files.first().map(|file| file.name.as_str()), Some("empty.toml"));
        assert!(matches!(catalogue, Cow::Owned(_)));
    }

    #[test]
    fn what_cannot_be_used_is_told_with_its_file() {
        assert!(problem(&["empty.toml", "none.toml"]).starts_with("none.toml: cannot be read: "));
        assert!(
            problem(&["wrong.toml"]).starts_with("wrong.toml:1: "),
            "{}",
            problem(&["wrong.toml"])
        );
    }
}
