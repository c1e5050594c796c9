//! Errors of imports and exports.

use std::io;
use std::path::{Path, PathBuf};

use rankguard_checkpoint::StoreError;
use rankguard_checkpoint::format::{ManifestError, PlanError, ShardLayoutError};
use rankguard_checkpoint::restore::RestoreError;

/// Error of an import or an export. Every message names the file or the tensor.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
#[non_exhaustive]
pub enum ExchangeError {
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is already there, and nothing is overwritten; name another path, or replace it with --force", path.display())]
    AlreadyThere { path: PathBuf },
    #[error("{} holds {foreign}, which no export writes; name another path, or remove it", path.display())]
    NotAnExport { path: PathBuf, foreign: String },
    #[error("{} is neither a .safetensors file, nor a directory with such files, nor a DCP directory with a .metadata file", path.display())]
    UnknownFormat { path: PathBuf },
    #[error("{}: {what}", path.display())]
    Malformed { path: PathBuf, what: String },
    #[error("{}: {entry}: damaged: {what}", path.display())]
    Damaged { path: PathBuf, entry: String, what: String },
    #[error("{}: no plain values: {source}", path.display())]
    Pickle {
        path: PathBuf,
        source: rankguard_pickle::Error,
    },
    #[error("the parts do not make up a tensor: {0}")]
    Plan(#[from] PlanError),
    #[error("{0}")]
    Layout(#[from] ShardLayoutError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("there is nothing to {what}: no tensor could be used{}", first(.why))]
    Nothing { what: &'static str, why: Option<String> },
    #[error("{what}")]
    Unfit { what: String },
}

fn first(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!("; {why}")).unwrap_or_default()
}

impl ExchangeError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn malformed(path: &Path, what: impl Into<String>) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
