//! Errors of the object tier.

use std::path::PathBuf;
use std::time::Duration;

use rankguard_checkpoint::format::{
    CheckpointId, ChunkDigest, Digest, ManifestError, NameError, RecordError, ShardLayoutError,
};
use rankguard_checkpoint::{ReadFailure, StoreError};
use rankguard_model::JobId;

use super::request_failure::RequestFailure;

/// Error of the object tier. Every message names the URL and, where known, the remedy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ObjectError {
    #[error("{url} is no place for checkpoints: {problem}")]
    Url { url: String, problem: String },
    #[error("cannot {what} {url}; {}", RequestFailure::of(.source).advice())]
    Request {
        what: &'static str,
        url: String,
        source: object_store::Error,
    },
    #[error("cannot {what} {url}: no answer within {limit:?}; check that the object store is reachable")]
    Deadline {
        what: &'static str,
        url: String,
        limit: Duration,
    },
    #[error("{url} is missing, or was removed since it was listed")]
    Missing { url: String },
    #[error(
        "{url} is already there with other content, and nothing is overwritten; another job of this name writes there"
    )]
    Conflict { url: String },
    #[error("{url} is {found} bytes long where {stated} are expected")]
    Size { url: String, stated: u64, found: u64 },
    #[error("{url} has digest {found} where the manifest says {stated}")]
    Digest { url: String, stated: Digest, found: Digest },
    #[error("{url} is damaged at byte {at}: digest is {found}, the index says {stated}")]
    Damaged {
        url: String,
        at: u64,
        stated: ChunkDigest,
        found: ChunkDigest,
    },
    #[error(
        "{} is damaged at byte {at}: digest is {found}, the index says {stated}; repair it first, damage is not copied",
        path.display()
    )]
    LocalDamage {
        path: PathBuf,
        at: u64,
        stated: ChunkDigest,
        found: ChunkDigest,
    },
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is already there with other content, and nothing is overwritten", path.display())]
    LocalConflict { path: PathBuf },
    #[error("{url} {problem}")]
    Manifest { url: String, problem: ManifestError },
    #[error("cannot read {url}: it {problem}")]
    Record { url: String, problem: RecordError },
    #[error("{url} {problem}")]
    Index { url: String, problem: ShardLayoutError },
    #[error("{url} belongs to job {job}, checkpoint {id}")]
    Foreign { url: String, job: JobId, id: CheckpointId },
    #[error("checkpoint {id} of job {job} is fenced off: {newer} of a higher generation is committed at {url}")]
    Fenced {
        job: JobId,
        id: CheckpointId,
        newer: CheckpointId,
        url: String,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Name(#[from] NameError),
}

impl ObjectError {
    /// Returns true if the same call may succeed later without intervention. Data that was sent is not sent again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Deadline { .. } => true,
            Self::Request { source, .. } => RequestFailure::of(source).may_pass(),
            Self::Store(problem) => problem.is_retryable(),
            _ => false,
        }
    }

    /// Classifies the error as proven damage or not, for the checkpoint that was read.
    pub fn failure(&self) -> ReadFailure {
        match self {
            Self::Url { .. } | Self::Request { .. } | Self::Deadline { .. } | Self::Io { .. } => {
                ReadFailure::Unavailable
            }
            Self::Missing { .. } => ReadFailure::Missing,
            Self::Conflict { .. } | Self::LocalConflict { .. } | Self::Fenced { .. } => ReadFailure::Conflict,
            Self::Manifest { problem, .. } if problem.is_of_other_version() => ReadFailure::Invalid,
            Self::Index { problem, .. } if problem.is_of_other_version() => ReadFailure::Invalid,
            Self::Size { .. }
            | Self::Digest { .. }
            | Self::Damaged { .. }
            | Self::LocalDamage { .. }
            | Self::Manifest { .. }
            | Self::Record { .. }
            | Self::Index { .. }
            | Self::Foreign { .. } => ReadFailure::Damaged,
            Self::Store(problem) => problem.failure(),
            Self::Name(_) => ReadFailure::Invalid,
        }
    }

    /// Returns true if the cause lies in the object store or the network, not in the data.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Url { .. } | Self::Request { .. } | Self::Deadline { .. })
    }
}
