//! The knowledge that decisions rest on.

use std::borrow::Cow;

use rankguard_faults::{Catalogue, CatalogueFile};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::brain::Turn;

/// The catalogue in force and the files that were joined to the built-in one. It is equal to any other: the identity of a state
/// is in its events.
#[derive(Debug, Clone)]
pub(crate) struct CatalogueInForce {
    catalogue: Cow<'static, Catalogue>,
    files: Vec<CatalogueFile>,
}

impl CatalogueInForce {
    /// A catalogue that needs no files.
    pub(crate) fn builtin(catalogue: &'static Catalogue) -> Self {
        Self {
            catalogue: Cow::Borrowed(catalogue),
            files: Vec::new(),
        }
    }

    pub(crate) fn get(&self) -> &Catalogue {
        &self.catalogue
    }
}

impl PartialEq for CatalogueInForce {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Only the files are written: the rest is in the program.
impl Serialize for CatalogueInForce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.files.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CatalogueInForce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let files = Vec::<CatalogueFile>::deserialize(deserializer)?;
        // Files of another version may be refused now. The caller compares versions and gives its files again.
        let catalogue = CatalogueFile::join(&files).unwrap_or(Cow::Borrowed(Catalogue::builtin()));
        Ok(Self { catalogue, files })
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
                self.state.catalogue = CatalogueInForce {
                    catalogue,
                    files: files.to_vec(),
                };
            }
            // Whoever gave them has tried them, so this is a journal of another version.
            Err(mistakes) => self.announce(format!("catalogue files cannot be used any more:\n{mistakes}")),
        }
    }
}
