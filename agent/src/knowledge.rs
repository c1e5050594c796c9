//! What lines are tried against: the built-in catalogue with the files of a person, read again whenever that is asked for.
//!
//! Readers of lines take the matcher anew at every look, so a reload reaches all of them within one interval, and what they
//! hold open stays open. Files that cannot be used change nothing: what was in force stays, and why they were refused is kept
//! for whoever asks the agent.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rankguard_faults::{Catalogue, CatalogueError, Matcher};

use crate::clock;
use crate::outlets::{CatalogueView, RefusedView};

/// The catalogue of one agent. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct Knowledge(Arc<Inner>);

#[derive(Default)]
struct Inner {
    files: Vec<PathBuf>,
    /// None until it is first loaded: then the built-in catalogue is in force.
    current: RwLock<Option<Current>>,
}

struct Current {
    /// None where there are no files: the built-in one is there in any case.
    catalogue: Option<Arc<Catalogue>>,
    matcher: Arc<Matcher>,
    view: CatalogueView,
}

/// Why files of a person cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// A file cannot be read.
    #[error("{path}: cannot be read: {source}")]
    Unread {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// They do not hold together; each mistake on a line of its own, with file, line and key.
    #[error(transparent)]
    Wrong(#[from] CatalogueError),
}

impl Knowledge {
    /// The built-in catalogue and these files, none of which is read before [`Knowledge::reload`].
    pub fn new(files: Vec<PathBuf>) -> Self {
        Self(Arc::new(Inner {
            files,
            current: RwLock::default(),
        }))
    }

    /// The files of a person.
    pub fn files(&self) -> &[PathBuf] {
        &self.0.files
    }

    /// Reads the files again. When they cannot be used, what was in force stays.
    pub fn reload(&self) -> Result<(), KnowledgeError> {
        let read = self.read();
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        let before = current.take();
        let (loads, refused) = before.as_ref().map_or((0, 0), |it| (it.view.loads, it.view.refused));
        match read {
            Ok(mut read) => {
                (read.view.loads, read.view.refused) = (loads + 1, refused);
                let (version, signatures) = (&read.view.version, read.view.signatures);
                tracing::info!(version, signatures, "catalogue loaded");
                *current = Some(read);
                Ok(())
            }
            Err(problem) => {
                *current = before.map(|mut it| {
                    it.view.refused += 1;
                    it.view.newest_refusal = Some(RefusedView {
                        at: clock::now(),
                        why: problem.to_string(),
                    });
                    it
                });
                Err(problem)
            }
        }
    }

    /// What lines are tried against now.
    pub(crate) fn matcher(&self) -> Arc<Matcher> {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        current
            .as_ref()
            .map_or_else(Matcher::builtin, |it| Arc::clone(&it.matcher))
    }

    /// What `ask` makes of the catalogue that is in force.
    pub fn with_catalogue<T>(&self, ask: impl FnOnce(&Catalogue) -> T) -> T {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        let own = current.as_ref().and_then(|it| it.catalogue.clone());
        drop(current);
        ask(own.as_deref().unwrap_or_else(|| Catalogue::builtin()))
    }

    /// As it is told to whoever asks.
    pub(crate) fn view(&self) -> CatalogueView {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|it| it.view.clone()).unwrap_or_default()
    }

    fn read(&self) -> Result<Current, KnowledgeError> {
        let mut texts = Vec::new();
        for path in &self.0.files {
            let text = std::fs::read_to_string(path).map_err(|source| KnowledgeError::Unread {
                path: path.clone(),
                source,
            })?;
            texts.push((path.display().to_string(), text));
        }
        let view = |catalogue: &Catalogue| CatalogueView {
            version: catalogue.version(),
            signatures: catalogue.signatures().len() as u64,
            files: self.0.files.clone(),
            loaded: clock::now(),
            ..CatalogueView::default()
        };
        if texts.is_empty() {
            return Ok(Current {
                catalogue: None,
                matcher: Matcher::builtin(),
                view: view(Catalogue::builtin()),
            });
        }
        let texts: Vec<(&str, &str)> = texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let catalogue = Catalogue::with_files(&texts)?;
        Ok(Current {
            matcher: Arc::new(Matcher::new(&catalogue)),
            view: view(&catalogue),
            catalogue: Some(Arc::new(catalogue)),
        })
    }
}

impl fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Knowledge").field(&self.0.files).finish()
    }
}
