//! What a rank is told when its wish cannot be met.

use rankguard_checkpoint::StoreError;
use rankguard_checkpoint::arena::ArenaError;
use rankguard_checkpoint::restore::RestoreError;

/// Why a rank's wish cannot be met.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    #[error("make the arena: {0}")]
    Arena(#[from] ArenaError),
    #[error("the rank has no arena; it must ask for one first")]
    NoArena,
    #[error("{0}")]
    Memory(String),
    #[error("make memory for the restored image: {0}")]
    Own(#[source] std::io::Error),
    #[error("hand the restored tensors to the rank: {0}")]
    Hand(#[source] std::io::Error),
    #[error("the rank has not taken the part before out of its window for {0:?}")]
    NotTaken(std::time::Duration),
    #[error("read the checkpoint: {0}")]
    Store(#[from] StoreError),
    #[error("restore: {0}")]
    Restore(#[from] RestoreError),
}

impl DeskError {
    /// Whether the checkpoint itself is at fault, so that nobody should be sent to it again.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Arena(_) | Self::NoArena | Self::Memory(_) | Self::Own(_) | Self::Hand(_) | Self::NotTaken(_) => {
                false
            }
            Self::Store(problem) => !problem.is_retryable(),
            Self::Restore(problem) => !matches!(problem, RestoreError::Destination { .. }),
        }
    }
}
