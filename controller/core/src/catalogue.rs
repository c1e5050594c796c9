//! Failure catalogue in use by the decision core.

use std::borrow::Cow;

use rankguard_faults::{Catalogue, CatalogueFile};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decision::DecisionContext;

/// Current catalogue and the files that were merged into the built-in one. All values compare as equal, because the
/// events of a state determine its catalogue.
#[derive(Debug, Clone)]
pub(crate) struct CatalogueInForce {
    catalogue: Cow<'static, Catalogue>,
    files: Vec<CatalogueFile>,
}

impl CatalogueInForce {
    /// Wraps a catalogue without additional files.
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

/// Serialises the files only; the built-in catalogue is part of the program.
impl Serialize for CatalogueInForce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.files.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CatalogueInForce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let files = Vec::<CatalogueFile>::deserialize(deserializer)?;
        // Files of another version may be invalid now. The caller compares versions and supplies its files again.
        let catalogue = CatalogueFile::join(&files).unwrap_or(Cow::Borrowed(Catalogue::builtin()));
        Ok(Self { catalogue, files })
    }
}

impl DecisionContext<'_> {
    /// Replaces the catalogue for future verdicts. Existing verdicts are unchanged.
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
            // The caller has validated the files, so this journal comes from another version.
            Err(mistakes) => self.announce(format!("catalogue files cannot be used any more:\n{mistakes}")),
        }
    }
}
