//! Classification of read failures by what they prove about a checkpoint (RG-2).
//!
//! Only [`ReadFailure::Damaged`] counts against a checkpoint, and only after a second read confirmed it. Every other
//! failure means only that the checkpoint could not be read at this place and time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::source::ChunkError;
use crate::store::StoreError;

/// Conclusion that a failed read allows about a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadFailure {
    /// No conclusion: the request names boxes, jobs or versions that no copy can supply.
    Invalid,
    /// No conclusion: the storage is not readable now (permission, I/O error, time-out, full disk, no route).
    Unavailable,
    /// No conclusion: another process wrote other content there first, or is committing.
    Conflict,
    /// A file is absent. Proves a loss only if the files that name it are present and intact.
    Missing,
    /// The bytes read contradict a committed digest, length or name.
    Damaged,
}

impl ReadFailure {
    /// True if a later read may succeed without a repair.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Unavailable | Self::Conflict)
    }
}

impl fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Conflict => "conflict",
            Self::Missing => "missing",
            Self::Damaged => "damaged",
        })
    }
}

/// Error of a chunk source with its classification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SourceFailure {
    /// Classification of the error.
    pub failure: ReadFailure,
    /// Text of the error and its causes.
    pub text: String,
}

/// Classifies an error of a chunk source; an unknown error type is [`ReadFailure::Unavailable`].
pub fn failure_of(error: &ChunkError) -> ReadFailure {
    if let Some(known) = error.downcast_ref::<SourceFailure>() {
        return known.failure;
    }
    error
        .downcast_ref::<StoreError>()
        .map_or(ReadFailure::Unavailable, StoreError::failure)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::format::Digest;

    fn io_error(kind: io::ErrorKind) -> StoreError {
        StoreError::Io {
            what: "read",
            path: "/store/x".into(),
            source: kind.into(),
        }
    }

    /// Errors from issue reports: each of these once removed a checkpoint from the list.
    #[test]
    fn rg_2_only_contradicted_bytes_are_damage() {
        let path = || "/store/x".into();
        let digest = Digest::of(b"x");
        for (error, failure) in [
            (io_error(io::ErrorKind::PermissionDenied), ReadFailure::Unavailable),
            (io_error(io::ErrorKind::Other), ReadFailure::Unavailable),
            (
                io_error(io::ErrorKind::StaleNetworkFileHandle),
                ReadFailure::Unavailable,
            ),
            (io_error(io::ErrorKind::UnexpectedEof), ReadFailure::Damaged),
            (StoreError::Conflict { path: path() }, ReadFailure::Conflict),
            (StoreError::Missing { path: path() }, ReadFailure::Missing),
            (
                StoreError::Digest {
                    path: path(),
                    stated: digest,
                    found: digest,
                },
                ReadFailure::Damaged,
            ),
            (
                StoreError::NoSpace {
                    path: path(),
                    bytes: 1,
                    source: io::ErrorKind::StorageFull.into(),
                },
                ReadFailure::Unavailable,
            ),
        ] {
            assert_eq!(error.failure(), failure, "{error}");
            assert_eq!(failure_of(&error.into()), failure);
        }
        assert_eq!(
            failure_of(&"a source of another crate".into()),
            ReadFailure::Unavailable
        );
    }
}
