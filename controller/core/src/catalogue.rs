//! The knowledge that decisions rest on.

use std::borrow::Cow;

use rankguard_faults::{Catalogue, CatalogueError};
use serde::{Deserialize, Serialize};

use crate::brain::Turn;

/// A file that a person adds to the built-in catalogue, as it was when it was read: a journal that holds it can be played
/// again whatever becomes of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueFile {
    /// Its name, which mistakes repeat.
    pub name: String,
    /// Its text (TOML).
    pub text: String,
}

impl CatalogueFile {
    /// The built-in catalogue with these files; all mistakes at once, each with file, line and key.
    pub fn join(files: &[Self]) -> Result<Cow<'static, Catalogue>, CatalogueError> {
        if files.is_empty() {
            return Ok(Cow::Borrowed(Catalogue::builtin()));
        }
        let texts = files.iter().map(|file| (file.name.as_str(), file.text.as_str()));
        Catalogue::with_files(&texts.collect::<Vec<_>>()).map(Cow::Owned)
    }
}

/// A catalogue. It is equal to any other: the state's identity is in the events, not in the knowledge.
#[derive(Debug, Clone)]
pub(crate) struct Knowing(pub Cow<'static, Catalogue>);

impl PartialEq for Knowing {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Turn<'_> {
    /// From now on verdicts rest on another catalogue. What was concluded stays as it was said.
    pub(crate) fn learn(&mut self, files: &[CatalogueFile]) {
        match CatalogueFile::join(files) {
            Ok(catalogue) => {
                self.announce(format!(
                    "catalogue {} is in force: {} classes, {} files besides the built-in ones",
                    catalogue.version(),
                    catalogue.classes().count(),
                    files.len()
                ));
                self.state.catalogue = Knowing(catalogue);
            }
            // Whoever gave them has tried them, so this is a journal of another version.
            Err(mistakes) => self.announce(format!("catalogue files cannot be used any more:\n{mistakes}")),
        }
    }
}
