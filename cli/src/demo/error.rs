//! Errors of the demo.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Failure of the demo itself, with exit code 2.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub(crate) enum DemoError {
    #[error("cannot {what}")]
    Io { what: &'static str, source: io::Error },
    #[error("the {what} ended unexpectedly ({status}); see its log {log}", log = log.display())]
    Died {
        what: String,
        status: ExitStatus,
        log: PathBuf,
    },
    #[error("timeout waiting for {what}; see the log {log}", log = log.display())]
    Slow { what: String, log: PathBuf },
    #[error("unexpected state: {0}")]
    Story(String),
    #[error("cannot call the controller")]
    Client(#[from] crate::client::ClientError),
    #[error("cannot write the report")]
    Report(#[source] io::Error),
    #[error("interrupted")]
    Interrupted,
}

impl DemoError {
    pub(super) fn io(what: &'static str, source: io::Error) -> Self {
        Self::Io { what, source }
    }
}
