//! What a failed read proves about a checkpoint (RG-2).
//!
//! Only [`ReadFailure::Damaged`] speaks against a checkpoint, and only after it was confirmed by a second read. Everything else
//! means that the checkpoint could not be read at this place and moment.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::source::ChunkError;
use crate::store::StoreError;

/// What a failed read proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadFailure {
    /// Nothing: the request names boxes, jobs or versions that no copy can supply.
    Invalid,
    /// Nothing: the storage cannot be read now (permission, I/O error, time-out, full disk, no route).
    Unavailable,
    /// Nothing: another process put other content there first, or commits meanwhile.
    Conflict,
    /// A file is absent. Proves a loss only where the files that name it are there and intact.
    Missing,
    /// Bytes were read that contradict a committed digest, length or name.
    Damaged,
}

impl ReadFailure {
    /// Whether a later read of the same may succeed without a repair.
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

/// An error of a chunk source with what it proves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SourceFailure {
    /// What it proves.
    pub failure: ReadFailure,
    /// The error with its causes.
    pub text: String,
}

/// What an error of a chunk source proves: nothing where its type is not known.
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

    /// The list of issue reports: each of these once struck a checkpoint off.
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
