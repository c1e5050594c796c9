//! Errors of store operations.

use std::io;
use std::path::{Path, PathBuf};

use rankguard_model::{Generation, JobId, Rank, RunId};
use rustix::io::Errno;

use crate::arena::StreamError;
use crate::failure::ReadFailure;
use crate::format::{CheckpointId, ChunkDigest, Digest, ManifestError, NameError, RecordError, ShardLayoutError};

/// Error of a store operation. Messages name the file, or the rank or checkpoint.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum StoreError {
    #[error("no space for {bytes} bytes of {}; free space, or keep fewer checkpoints", path.display())]
    NoSpace {
        path: PathBuf,
        bytes: u64,
        source: io::Error,
    },
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("image of rank {rank}: {problem}")]
    Image { rank: Rank, problem: ShardLayoutError },
    #[error("image of rank {rank}: {problem}")]
    ImageBroken { rank: Rank, problem: StreamError },
    #[error("image of rank {rank}: cannot read chunk {chunk}")]
    ImageUnreadable { rank: Rank, chunk: u32, source: io::Error },
    #[error(
        "image of rank {rank}: chunk {chunk} (tensor {tensor}) has digest {found}, the rank said {stated}: changed after it was sealed"
    )]
    ImageDamaged {
        rank: Rank,
        chunk: u32,
        tensor: String,
        stated: ChunkDigest,
        found: ChunkDigest,
    },
    #[error("{} is already there with other content, and nothing is overwritten", path.display())]
    Conflict { path: PathBuf },
    #[error("{} is locked by a process that removes the checkpoint", path.display())]
    Busy { path: PathBuf },
    #[error("{} was not written: the commit was given up", path.display())]
    GivenUp { path: PathBuf },
    #[error("{} is missing", path.display())]
    Missing { path: PathBuf },
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is {found} bytes long where {stated} are expected", path.display())]
    Size { path: PathBuf, stated: u64, found: u64 },
    #[error("{} has digest {found} where the manifest says {stated}", path.display())]
    Digest {
        path: PathBuf,
        stated: Digest,
        found: Digest,
    },
    #[error("{} {problem}", path.display())]
    Index { path: PathBuf, problem: ShardLayoutError },
    #[error("{} {problem}", path.display())]
    Manifest { path: PathBuf, problem: ManifestError },
    #[error("{} borrows chunks from {}, which cannot give them", path.display(), origin.display())]
    Origin { path: PathBuf, origin: PathBuf },
    #[error("{} belongs to {belongs}, not to {expected}", path.display())]
    Foreign {
        path: PathBuf,
        belongs: String,
        expected: String,
    },
    #[error("cannot remove {}: it has files that are not of a checkpoint: {}", path.display(), names.join(", "))]
    ForeignFiles { path: PathBuf, names: Vec<String> },
    #[error("cannot read {}: it {problem}", path.display())]
    Record { path: PathBuf, problem: RecordError },
    #[error("checkpoint {id} of job {job} is fenced off: a later attempt of the run began at generation {first}")]
    Superseded {
        job: JobId,
        id: CheckpointId,
        first: Generation,
    },
    #[error("cannot commit into {}: the folder belongs to run {found}, and this is run {own}", path.display())]
    OtherRun { path: PathBuf, found: RunId, own: RunId },
    #[error("checkpoint {id} of job {job} is fenced off: {newer} of a higher generation is committed")]
    Fenced {
        job: JobId,
        id: CheckpointId,
        newer: CheckpointId,
    },
}

impl StoreError {
    /// Converts an OS error at `path`; `bytes` is the size that was to be written.
    pub(super) fn writing(what: &'static str, path: &Path, bytes: u64, source: io::Error) -> Self {
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            // A quota and a file size limit require the same response as a full disk.
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::NoSpace { path, bytes, source },
            _ => Self::Io { what, path, source },
        }
    }

    /// Converts an OS error of an operation that does not write.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::writing(what, path, 0, source)
    }

    /// True if space, quota or file size limit is exhausted.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }

    /// True if the image or its producer is at fault, not the store.
    pub fn is_of_image(&self) -> bool {
        matches!(
            self,
            Self::Image { .. } | Self::ImageBroken { .. } | Self::ImageUnreadable { .. } | Self::ImageDamaged { .. }
        )
    }

    /// Returns true if the store has another content of the same name. The store is sound: the name was written twice, such as by
    /// a process that was started again within its generation.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Classifies the error by what it proves about the checkpoint.
    pub fn failure(&self) -> ReadFailure {
        match self {
            // The file is shorter than its index states.
            Self::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof => ReadFailure::Damaged,
            Self::NoSpace { .. } | Self::Io { .. } | Self::ImageUnreadable { .. } => ReadFailure::Unavailable,
            Self::Conflict { .. }
            | Self::Busy { .. }
            | Self::GivenUp { .. }
            | Self::ForeignFiles { .. }
            | Self::Fenced { .. }
            | Self::Superseded { .. }
            | Self::OtherRun { .. } => ReadFailure::Conflict,
            Self::Missing { .. } | Self::Origin { .. } => ReadFailure::Missing,
            Self::Manifest { problem, .. } if problem.is_of_other_version() => ReadFailure::Invalid,
            Self::Index { problem, .. } if problem.is_of_other_version() => ReadFailure::Invalid,
            Self::NotAFile { .. }
            | Self::Size { .. }
            | Self::Digest { .. }
            | Self::Index { .. }
            | Self::Manifest { .. }
            | Self::Record { .. }
            | Self::Foreign { .. } => ReadFailure::Damaged,
            Self::Name(_) | Self::Image { .. } | Self::ImageBroken { .. } | Self::ImageDamaged { .. } => {
                ReadFailure::Invalid
            }
        }
    }

    /// True if the same call may succeed later without any other action.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::ImageUnreadable { .. })
    }

    /// Returns the path of the affected file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::NoSpace { path, .. }
            | Self::Io { path, .. }
            | Self::Conflict { path }
            | Self::Busy { path }
            | Self::GivenUp { path }
            | Self::ForeignFiles { path, .. }
            | Self::Missing { path }
            | Self::NotAFile { path }
            | Self::Size { path, .. }
            | Self::Digest { path, .. }
            | Self::Index { path, .. }
            | Self::Manifest { path, .. }
            | Self::Origin { path, .. }
            | Self::Record { path, .. }
            | Self::OtherRun { path, .. }
            | Self::Foreign { path, .. } => Some(path),
            Self::Name(_)
            | Self::Image { .. }
            | Self::ImageBroken { .. }
            | Self::ImageUnreadable { .. }
            | Self::ImageDamaged { .. }
            | Self::Superseded { .. }
            | Self::Fenced { .. } => None,
        }
    }
}
