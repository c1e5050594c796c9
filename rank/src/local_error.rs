//! Errors of a rank without an agent.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_checkpoint::arena::{ArenaError, FillError};
use rankguard_checkpoint::format::{BoxError, CheckpointId, ManifestError, ShardLayoutError};
use rankguard_checkpoint::restore::RestoreError;
use rankguard_checkpoint::{ReadFailure, StoreError};
use rankguard_model::{Rank, Step};

use crate::CallInterrupted;

/// Error of a call to a [`LocalRank`](crate::LocalRank).
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum LocalError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot use the arena")]
    Arena(#[from] ArenaError),
    #[error("cannot save into the arena")]
    Fill(#[from] FillError),
    #[error("cannot save a tensor: {0}")]
    Box(#[from] BoxError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("cannot restore checkpoint {id}: {problem}")]
    Restore {
        id: CheckpointId,
        problem: Box<RestoreError>,
    },
    #[error(
        "{problem}; it has parity: `{command}` rebuilds what that covers; to go on from an older checkpoint, name its step"
    )]
    Repairable { problem: Box<LocalError>, command: String },
    #[error("cannot restore tensor {name}: it has {needs} bytes and the buffer {has}")]
    Buffer { name: String, has: u64, needs: u64 },
    #[error(
        "cannot save step {step}: {} holds checkpoints of an earlier run up to {newest}, and this program did not restore \
         from there; restore first, or save under another job name or into another folder",
        path.display()
    )]
    NotRestored {
        step: Step,
        newest: CheckpointId,
        path: PathBuf,
    },
    #[error("no checkpoint of step {step} is committed in {}", path.display())]
    NoSuchStep { step: Step, path: PathBuf },
    #[error(
        "cannot commit step {step}: rank {rank} has left no shard within {within:?} ({} is missing); did it skip this step, or take another generation?",
        path.display()
    )]
    Missing {
        step: Step,
        rank: Rank,
        within: Duration,
        path: PathBuf,
    },
    #[error("step {step} is not committed: rank 0 has not made {} within {within:?}", path.display())]
    NotCommitted {
        step: Step,
        within: Duration,
        path: PathBuf,
    },
    #[error("cannot commit step {step}: rank {rank} has not written its shard: {reason}")]
    VoidShard { step: Step, rank: Rank, reason: String },
    #[error("step {step} is not committed: rank 0 reports: {reason}")]
    VoidCommit { step: Step, reason: String },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} {problem}", path.display())]
    Index { path: PathBuf, problem: ShardLayoutError },
    #[error("cannot commit: {0}")]
    Manifest(#[from] ManifestError),
    #[error("step {step} was not made durable: {reason}")]
    NotDurable { step: Step, reason: String },
    #[error("not all is written after {limit:?}")]
    Deadline { limit: Duration },
    #[error("cannot commit step {step}: the session was closed while rank {rank} had left no shard ({} is missing)", path.display())]
    Abandoned { step: Step, rank: Rank, path: PathBuf },
    #[error(transparent)]
    Interrupted(#[from] CallInterrupted),
}

impl LocalError {
    /// Returns true if the checkpoint that was read is damaged or missing, so that an older one may be restored instead
    /// (RG-2). Other errors, such as unreadable storage, may be temporary.
    pub(crate) fn is_damage(&self) -> bool {
        let failure = match self {
            Self::Store(problem) => problem.failure(),
            Self::Restore { problem, .. } => problem.failure(),
            _ => return false,
        };
        matches!(failure, ReadFailure::Damaged | ReadFailure::Missing)
    }
}
