//! Errors of the journal.

use std::path::PathBuf;

/// Error of the journal. Every message names the file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum JournalError {
    #[error(
        "journal {} is in use by another process; stop that controller first, or give this one a state directory of its \
         own", path.display()
    )]
    InUse { path: PathBuf },
    #[error("there is no journal at {}", path.display())]
    Absent { path: PathBuf },
    #[error(
        "{} is not a journal, or it is damaged; a journal is one file that only the controller writes: restore it from \
         a backup, or move it away to begin anew (running jobs are then unknown to the controller)", path.display()
    )]
    NotAJournal {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(
        "journal {} has format {found}, and this program reads formats up to {expected}; use the program that wrote it, or move \
         it away to begin anew", path.display()
    )]
    Version {
        path: PathBuf,
        found: String,
        expected: u32,
    },
    #[error("journal {}: entry {entry} is missing", path.display())]
    Gap { path: PathBuf, entry: u64 },
    #[error("journal {}: entry {entry} cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        entry: u64,
        source: serde_json::Error,
    },
    #[error(
        "journal {}: cannot use the snapshot after entry {entry}: {problem}", path.display()
    )]
    Snapshot { path: PathBuf, entry: u64, problem: String },
    #[error(
        "journal {}: cannot restore the state: entries before {first} were removed and no snapshot can be read; restore the \
         file from a backup, or move it away to begin anew (running jobs are then unknown to the controller)", path.display()
    )]
    NoSnapshot { path: PathBuf, first: u64 },
    #[error("journal {}: its policy cannot be read", path.display())]
    Policy { path: PathBuf, source: serde_json::Error },
    #[error("cannot {what} journal {}", path.display())]
    Storage {
        what: &'static str,
        path: PathBuf,
        source: Box<redb::Error>,
    },
}

impl JournalError {
    /// Returns true if the content of the file cannot be used, so that a further attempt fails in the same way.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::NotAJournal { .. }
            | Self::Version { .. }
            | Self::Gap { .. }
            | Self::Unreadable { .. }
            | Self::Snapshot { .. }
            | Self::NoSnapshot { .. }
            | Self::Policy { .. } => true,
            Self::Storage { source, .. } => matches!(**source, redb::Error::Corrupted(_)),
            Self::InUse { .. } | Self::Absent { .. } => false,
        }
    }

    /// Returns true for an I/O error while the file was opened, read or written, such as a full disk: the journal
    /// itself may be intact.
    pub fn is_write_failure(&self) -> bool {
        matches!(self, Self::Storage { source, .. } if matches!(**source, redb::Error::Io(_) | redb::Error::PreviousIo))
    }
}
