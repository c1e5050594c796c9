//! The files that a person adds to the built-in catalogue: read when the controller starts and whenever that is asked for.
//!
//! What is read goes into the journal as an event, so that the same events still give the same verdicts whatever becomes of
//! the files. Files that cannot be used never get that far.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rankguard_faults::{CatalogueFile, CatalogueFilesError};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tracing::{error, info};

use crate::input::Input;

/// Where the files are, and the door through which a running controller is asked to read them again. All clones are the same
/// door.
#[derive(Clone, Default)]
pub struct CatalogueFiles {
    paths: Vec<PathBuf>,
    again: Arc<Notify>,
}

impl CatalogueFiles {
    /// These files.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            again: Arc::default(),
        }
    }

    /// The controller that was started with them reads them again; several calls in a row may be one reading.
    pub fn reload(&self) {
        self.again.notify_one();
    }

    /// The files as they are now, once they hold together, and the version of the catalogue that they make.
    pub(crate) fn read(&self) -> Result<(Vec<CatalogueFile>, String), CatalogueFilesError> {
        let (files, catalogue) = CatalogueFile::read(&self.paths, |path| std::fs::read_to_string(path))?;
        let version = catalogue.version();
        Ok((files, version))
    }

    /// Reads again whenever that is asked for.
    pub(crate) async fn follow(self, inputs: mpsc::Sender<Input>) -> Infallible {
        loop {
            self.again.notified().await;
            let again = self.clone();
            match spawn_blocking(move || again.read()).await {
                Ok(Ok((files, version))) => {
                    info!(version, files = files.len(), "catalogue files read again");
                    // Nobody listens only at the end.
                    let _ = inputs.send(Input::Catalogue { files, version }).await;
                }
                Ok(Err(problem)) => {
                    error!("the catalogue files cannot be used and the one before stays in force:\n{problem}");
                }
                Err(problem) => error!(%problem, "the catalogue files could not be read again"),
            }
        }
    }
}

/// Equal when the files are the same.
impl PartialEq for CatalogueFiles {
    fn eq(&self, other: &Self) -> bool {
        self.paths == other.paths
    }
}

impl Eq for CatalogueFiles {}

impl fmt::Debug for CatalogueFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CatalogueFiles").field(&self.paths).finish()
    }
}
