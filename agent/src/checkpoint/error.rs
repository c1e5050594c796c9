//! Errors that a rank receives when its checkpoint request cannot be met.

use std::sync::Arc;

use rankguard_checkpoint::arena::ArenaError;
use rankguard_checkpoint::restore::RestoreError;
use rankguard_checkpoint::{ReadFailure, StoreError};
use rankguard_checkpoint_tiers::object::ObjectError;
use rankguard_model::with_causes;

/// Error of a rank's checkpoint request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RankServiceError {
    #[error("make the arena: {0}")]
    Arena(#[from] ArenaError),
    #[error("the rank has no arena; it must ask for one first")]
    NoArena,
    #[error(
        "the job has no checkpoint store: submit it with `rankguard run --checkpoint-dir DIR --checkpoint-every STEPS`"
    )]
    NoStore,
    #[error("{0}")]
    Memory(String),
    #[error("make memory for the restored image: {0}")]
    Own(#[source] std::io::Error),
    #[error("hand the restored tensors to the rank: {0}")]
    Hand(#[source] std::io::Error),
    #[error("the rank has not taken the part before out of its window for {0:?}")]
    NotTaken(std::time::Duration),
    #[error("a later generation of the job acts by now")]
    Fenced,
    #[error("read the checkpoint: {}", shown(.store, .mirror.as_deref()))]
    Load {
        store: StoreError,
        /// `None` if the job has no object store.
        mirror: Option<Arc<ObjectError>>,
    },
    #[error("restore: {0}")]
    Restore(#[from] RestoreError),
}

impl RankServiceError {
    /// Returns true if the agent did not serve a request for a reason that is none of the checkpoint.
    pub(crate) fn is_refusal(&self) -> bool {
        !matches!(self, Self::Load { .. } | Self::Restore(_))
    }

    /// Returns the failure that this error proves about the checkpoint.
    pub(crate) fn failure(&self) -> ReadFailure {
        match self {
            Self::Arena(_)
            | Self::NoArena
            | Self::NoStore
            | Self::Memory(_)
            | Self::Own(_)
            | Self::Hand(_)
            | Self::NotTaken(_)
            | Self::Fenced => ReadFailure::Invalid,
            Self::Load { store, mirror } => {
                let mirror = mirror
                    .as_ref()
                    .map_or(ReadFailure::Missing, |problem| problem.failure());
                of_manifests(store.failure(), mirror)
            }
            Self::Restore(problem) => problem.failure(),
        }
    }
}

/// Combines the failures of the two places that should hold manifest and indexes. Absence from both is no proof of
/// loss: a file system that is not mounted looks the same.
fn of_manifests(store: ReadFailure, mirror: ReadFailure) -> ReadFailure {
    match (store, mirror) {
        (ReadFailure::Invalid, _) | (_, ReadFailure::Invalid) => ReadFailure::Invalid,
        (ReadFailure::Damaged, ReadFailure::Damaged | ReadFailure::Missing)
        | (ReadFailure::Missing, ReadFailure::Damaged) => ReadFailure::Damaged,
        _ => ReadFailure::Unavailable,
    }
}

fn shown(store: &StoreError, mirror: Option<&ObjectError>) -> String {
    let store = with_causes(store);
    match mirror {
        Some(mirror) => format!("{store}; the object store cannot supply it: {}", with_causes(mirror)),
        None => store,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rg_2_a_checkpoint_is_damaged_only_where_no_tier_may_hold_a_good_copy() {
        use ReadFailure::{Conflict, Damaged, Invalid, Missing, Unavailable};
        for (store, mirror, both) in [
            (Damaged, Damaged, Damaged),
            (Damaged, Missing, Damaged),
            (Missing, Damaged, Damaged),
            (Missing, Missing, Unavailable),
            (Damaged, Unavailable, Unavailable),
            (Unavailable, Damaged, Unavailable),
            (Damaged, Conflict, Unavailable),
            (Conflict, Missing, Unavailable),
            (Invalid, Damaged, Invalid),
        ] {
            assert_eq!(of_manifests(store, mirror), both, "{store}, {mirror}");
        }
    }
}
