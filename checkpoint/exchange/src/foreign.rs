//! Tensors, state and problems that a reader found in files of another format.

use std::collections::BTreeMap;

use rankguard_checkpoint::format::{Dtype, TensorBox};
use serde_json::Value;

use crate::ImportProblem;
use crate::problem::ProblemList;
use crate::volume::FileVolume;

/// Part of a tensor and its position in the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPart {
    pub boxed: TensorBox,
    /// Offset of the first byte in the volume.
    pub at: u64,
}

/// Checkpoint of another format, ready for import. Its data stays in the foreign files; [`crate::import()`] reads it
/// twice.
#[derive(Debug)]
pub struct ForeignCheckpoint {
    /// Name of the format: `safetensors` or `dcp`.
    pub format: &'static str,
    /// Parts of each tensor, by tensor name.
    pub(crate) parts: BTreeMap<String, Vec<TensorPart>>,
    pub(crate) volume: FileVolume,
    /// Small state of each rank that wrote the checkpoint; at most one for a format without ranks.
    pub states: Vec<Value>,
    /// Entries that were left out, with the reason.
    pub problems: Vec<ImportProblem>,
}

impl ForeignCheckpoint {
    pub(crate) fn new(
        format: &'static str,
        parts: Vec<TensorPart>,
        volume: FileVolume,
        states: Vec<Value>,
        problems: ProblemList,
    ) -> Self {
        let mut by_name: BTreeMap<String, Vec<TensorPart>> = BTreeMap::new();
        for part in parts {
            by_name.entry(part.boxed.name.clone()).or_default().push(part);
        }
        Self {
            format,
            parts: by_name,
            volume,
            states,
            problems: problems.into_vec(),
        }
    }

    /// Iterates over name, element type and shape of every tensor, by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Dtype, &[u64])> {
        self.parts.iter().filter_map(|(name, parts)| {
            let first = &parts.first()?.boxed;
            Some((name.as_str(), first.dtype, first.global_shape.as_slice()))
        })
    }

    /// Returns the size of all tensors in bytes.
    pub fn bytes(&self) -> u64 {
        self.tensors()
            .filter_map(|(name, dtype, shape)| TensorBox::whole(name, dtype, shape.to_vec()).bytes())
            .fold(0, u64::saturating_add)
    }
}
