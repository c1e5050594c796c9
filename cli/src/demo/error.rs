//! Errors of the demo.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Failure of the demo itself, with exit code 2.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub(crate) enum DemoError {
    #[error("{what}")]
    Io { what: &'static str, source: io::Error },
    #[error("the {what} ended by itself ({status}); its log is {log}", log = log.display())]
    Died {
        what: String,
        status: ExitStatus,
        log: PathBuf,
    },
    #[error("waited too long for {what}; a log is {log}", log = log.display())]
    Slow { what: String, log: PathBuf },
    #[error("the story took a wrong turn: {0}")]
    Story(String),
    #[error("talk to the controller")]
    Client(#[from] crate::client::ClientError),
    #[error("write the report")]
    Report(#[source] io::Error),
    #[error("interrupted")]
    Interrupted,
}

impl DemoError {
    pub(super) fn io(what: &'static str, source: io::Error) -> Self {
        Self::Io { what, source }
    }
}
