//! Tensors of a checkpoint that only the same number of ranks restores.
//!
//! Ranks that saved other values under one name restore their own. Another number of ranks refuses such a tensor, unless
//! the program permits the part of the first rank. The Python package writes what the program permitted in its restore
//! into the state of each rank: names of tensors under [`PERMITTED_KEY`], with [`ALL_TENSORS`] for all. A state without
//! the key (another writer, an earlier version, a program that restored nothing) does not show whether another number of
//! ranks is refused; then no tensor is reported.

use rankguard_checkpoint::format::{ShardIndex, tensor_differences};
use serde_json::Value;

/// Key of a rank's state with the names of tensors of which all ranks may take the first rank's part.
const PERMITTED_KEY: &str = "replicate";

/// Name that stands for all tensors.
const ALL_TENSORS: &str = "*";

/// Names that one commit reports; further ones add no information.
const TENSORS_MAX: usize = 16;

/// Returns the first names, sorted; empty if any number of ranks restores the checkpoint, or if that is unknown.
pub(super) fn first_tensors(indexes: &[ShardIndex]) -> Vec<String> {
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

fn permitted_names(index: &ShardIndex) -> Option<Vec<&str>> {
    let names = index.state.get(PERMITTED_KEY)?.as_array()?;
    names.iter().map(Value::as_str).collect()
}
