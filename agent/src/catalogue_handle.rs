//! Catalogue that lines are matched against: the built-in one with the operator's files, reloadable.
//!
//! Line readers fetch the matcher at every poll, so that a reload reaches all of them within one interval, while their
//! open files and positions remain. A failed reload changes nothing: the present catalogue remains in force, and the
//! reason is recorded for the agent's API.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rankguard_faults::{Catalogue, CatalogueFile, CatalogueFilesError, SignatureMatcher};

use crate::clock;
use crate::views::{CatalogueRefusalView, CatalogueView};

/// Catalogue of one agent. Cheap to clone; all clones share it.
#[derive(Clone, Default)]
pub struct CatalogueHandle(Arc<SharedCatalogue>);

#[derive(Default)]
struct SharedCatalogue {
    files: Vec<PathBuf>,
    /// None until the first load; the built-in catalogue is in force before it.
    current: RwLock<Option<LoadedCatalogue>>,
}

struct LoadedCatalogue {
    /// None without files: the built-in one is used then.
    catalogue: Option<Arc<Catalogue>>,
    matcher: Arc<SignatureMatcher>,
    view: CatalogueView,
}

impl CatalogueHandle {
    /// Creates a catalogue of the built-in one and these files, which are not read before [`CatalogueHandle::reload`].
    pub fn new(files: Vec<PathBuf>) -> Self {
        Self(Arc::new(SharedCatalogue {
            files,
            current: RwLock::default(),
        }))
    }

    /// Returns the operator's files.
    pub fn files(&self) -> &[PathBuf] {
        &self.0.files
    }

    /// Reads the files again. On an error the present catalogue remains in force.
    pub fn reload(&self) -> Result<(), CatalogueFilesError> {
        let read = self.read();
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        let before = current.take();
        let (loads, refused) = before.as_ref().map_or((0, 0), |it| (it.view.loads, it.view.refused));
        match read {
            Ok(mut read) => {
                (read.view.loads, read.view.refused) = (loads + 1, refused);
                let version = &read.view.version;
                let signatures = read.view.signatures;
                tracing::info!(version, signatures, "catalogue loaded");
                *current = Some(read);
                Ok(())
            }
            Err(problem) => {
                *current = before.map(|mut it| {
                    it.view.refused += 1;
                    it.view.newest_refusal = Some(CatalogueRefusalView {
                        at: clock::now(),
                        why: problem.to_string(),
                    });
                    it
                });
                Err(problem)
            }
        }
    }

    /// Returns the matcher in force.
    pub(crate) fn matcher(&self) -> Arc<SignatureMatcher> {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        current
            .as_ref()
            .map_or_else(SignatureMatcher::builtin, |it| Arc::clone(&it.matcher))
    }

    /// Returns the result of `ask` on the catalogue in force.
    pub fn with_catalogue<T>(&self, ask: impl FnOnce(&Catalogue) -> T) -> T {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        let own = current.as_ref().and_then(|it| it.catalogue.clone());
        drop(current);
        ask(own.as_deref().unwrap_or_else(|| Catalogue::builtin()))
    }

    /// Returns the catalogue's state for the agent's API.
    pub(crate) fn view(&self) -> CatalogueView {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|it| it.view.clone()).unwrap_or_default()
    }

    fn read(&self) -> Result<LoadedCatalogue, CatalogueFilesError> {
        let (_, catalogue) = CatalogueFile::read(&self.0.files, |path| std::fs::read_to_string(path))?;
        let view = CatalogueView {
            version: catalogue.version(),
            signatures: catalogue.signatures().len() as u64,
            files: self.0.files.clone(),
            loaded: clock::now(),
            ..CatalogueView::default()
        };
        Ok(match catalogue {
            Cow::Borrowed(_) => LoadedCatalogue {
                catalogue: None,
                matcher: SignatureMatcher::builtin(),
                view,
            },
            Cow::Owned(catalogue) => LoadedCatalogue {
                matcher: Arc::new(SignatureMatcher::new(&catalogue)),
                catalogue: Some(Arc::new(catalogue)),
                view,
            },
        })
    }
}

impl fmt::Debug for CatalogueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Knowledge").field(&self.0.files).finish()
    }
}
