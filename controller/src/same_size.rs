//! Tensors of a checkpoint that only the same number of ranks restores.
//!
//! Ranks that saved other values under one name restore their own. Another number of ranks refuses such a tensor, unless
//! the program permits the part of the first rank. The Python package writes what the program permitted in its restore
//! into the state of each rank: names of tensors under [`PERMITTED_KEY`], with [`ALL_TENSORS`] for all. A state without
//! the key (another writer, an earlier version, a program that restored nothing) does not show whether another number of
//! ranks is refused; then no tensor is reported.

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, ShardIndex, tensor_differences};
use rankguard_core::SameSizeCheckpoint;
use rankguard_model::{CheckpointView, JobId, StoreClaim};
use serde_json::Value;

/// Key of a rank's state with the names of tensors of which all ranks may take the first rank's part.
const PERMITTED_KEY: &str = "replicate";

/// Name that stands for all tensors.
const ALL_TENSORS: &str = "*";

/// Names that one commit reports; further ones add no information.
const TENSORS_MAX: usize = 16;

/// Returns the first names, sorted; empty if any number of ranks restores the checkpoint, or if that is unknown.
pub(crate) fn first_tensors(indexes: &[ShardIndex]) -> Vec<String> {
    let permitted: Option<Vec<Vec<&str>>> = indexes.iter().map(permitted_names).collect();
    let Some(permitted) = permitted else {
        return Vec::new();
    };
    let is_permitted = |name: &str| {
        permitted
            .iter()
            .any(|names| names.iter().any(|known| *known == ALL_TENSORS || *known == name))
    };
    let differences = tensor_differences(indexes).into_iter().map(|found| found.name);
    differences
        .filter(|name| !is_permitted(name))
        .take(TENSORS_MAX)
        .collect()
}

/// Number of checkpoints of a store that are examined, from the newest: a job starts from the first that it can read.
const EXAMINED_MAX: usize = 4;

/// Returns the newest checkpoints of a store that only the same number of ranks restores. One that does not load is left
/// out.
pub(crate) fn of_checkpoints(store: &Store, job: &JobId, views: &[CheckpointView]) -> Vec<SameSizeCheckpoint> {
    let newest = views.iter().rev().take(EXAMINED_MAX);
    let examined = newest.map(|view| SameSizeCheckpoint {
        step: view.step,
        generation: view.generation,
        tensors: tensors_of(store, job, view),
    });
    examined.filter(|found| !found.tensors.is_empty()).collect()
}

/// Adds to a claim the tensors for which only the same number of ranks restores its start.
pub(crate) fn examine_start(store: &Store, job: &JobId, claim: &mut StoreClaim) {
    if let Some(start) = claim.checkpoints.last() {
        claim.same_size = tensors_of(store, job, start);
    }
}

fn tensors_of(store: &Store, job: &JobId, view: &CheckpointView) -> Vec<String> {
    let id = CheckpointId {
        step: view.step,
        generation: view.generation,
    };
    let checkpoint = store.load(job, id).ok();
    checkpoint.map_or_else(Vec::new, |checkpoint| first_tensors(&checkpoint.indexes))
}

fn permitted_names(index: &ShardIndex) -> Option<Vec<&str>> {
    let names = index.state.get(PERMITTED_KEY)?.as_array()?;
    names.iter().map(Value::as_str).collect()
}
