//! What a reader found in somebody else's files.

use std::collections::BTreeMap;

use rankguard_checkpoint::format::{Dtype, TensorBox};
use serde_json::Value;

use crate::Problem;
use crate::problem::Problems;
use crate::volume::Volume;

/// A part of a tensor and its place in the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The part.
    pub boxed: TensorBox,
    /// Its first byte in the volume.
    pub at: u64,
}

/// A checkpoint of another format, ready to be imported. Its files are still where they are and are read once more, twice,
/// by [`crate::import()`].
#[derive(Debug)]
pub struct Foreign {
    /// `safetensors` or `dcp`.
    pub format: &'static str,
    /// Parts by tensor.
    pub(crate) parts: BTreeMap<String, Vec<Part>>,
    pub(crate) volume: Volume,
    /// Small state, one a rank of whoever wrote it; a format that knows no ranks has at most one.
    pub states: Vec<Value>,
    /// What was left out, and why.
    pub problems: Vec<Problem>,
}

impl Foreign {
    pub(crate) fn new(
        format: &'static str,
        parts: Vec<Part>,
        volume: Volume,
        states: Vec<Value>,
        problems: Problems,
    ) -> Self {
        let mut by_name: BTreeMap<String, Vec<Part>> = BTreeMap::new();
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

    /// Name, element type and shape of every tensor, by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Dtype, &[u64])> {
        self.parts.iter().filter_map(|(name, parts)| {
            let first = &parts.first()?.boxed;
            Some((name.as_str(), first.dtype, first.global_shape.as_slice()))
        })
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors()
            .filter_map(|(name, dtype, shape)| TensorBox::whole(name, dtype, shape.to_vec()).bytes())
            .fold(0, u64::saturating_add)
    }
}
