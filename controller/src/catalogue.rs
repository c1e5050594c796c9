//! Catalogue files that operators add to the built-in catalogue: read at the start of the controller and on every
//! reload request.
//!
//! Valid files are journalled as an event, so that a replay of the journal gives the same verdicts even if the files
//! change. Invalid files are not journalled.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rankguard_faults::{CatalogueFile, CatalogueFilesError};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tracing::{error, info};

use crate::input::LoopInput;

/// Paths of the catalogue files, and the reload signal of a running controller. Clones share the signal.
#[derive(Clone, Default)]
pub struct CatalogueFiles {
    paths: Vec<PathBuf>,
    again: Arc<Notify>,
}

impl CatalogueFiles {
    /// Creates the list; no file is read.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            again: Arc::default(),
        }
    }

    /// Requests that the running controller read its files again; repeated requests may be combined into one.
    pub fn reload(&self) {
        self.again.notify_one();
    }

    /// Reads and validates the files; returns them with the version of the merged catalogue. Fails if a file cannot be
    /// read or parsed, or the merged catalogue is invalid.
    pub(crate) fn read(&self) -> Result<(Vec<CatalogueFile>, String), CatalogueFilesError> {
        let (files, catalogue) = CatalogueFile::read(&self.paths, |path| std::fs::read_to_string(path))?;
        let version = catalogue.version();
        Ok((files, version))
    }

    /// Reads the files again on every reload request and sends them to the event loop. Errors are logged, and the
    /// current catalogue remains in use.
    pub(crate) async fn follow(self, inputs: mpsc::Sender<LoopInput>) -> Infallible {
        loop {
            self.again.notified().await;
            let again = self.clone();
            match spawn_blocking(move || again.read()).await {
                Ok(Ok((files, version))) => {
                    info!(version, files = files.len(), "catalogue files read again");
                    // The receiver is gone only when the controller stops.
                    let _ = inputs.send(LoopInput::Catalogue { files, version }).await;
                }
                Ok(Err(problem)) => {
                    error!("cannot use the catalogue files; the previous catalogue stays in use:\n{problem}");
                }
                Err(problem) => error!(%problem, "cannot reload the catalogue files"),
            }
        }
    }
}

/// Compares the paths only.
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
