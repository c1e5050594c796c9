//! The knowledge that decisions rest on.

use std::borrow::Cow;

use rankguard_faults::{Catalogue, CatalogueFile};

use crate::brain::Turn;

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
