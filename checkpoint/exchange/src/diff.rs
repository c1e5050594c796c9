//! Comparison of two checkpoints.
//!
//! Tensors that both checkpoints hold in the same boxes and chunks are compared by digest, without reading data.
//! Tensors with different boxes or chunks, as after a change of the world size, are compared byte by byte.

use std::collections::BTreeMap;

use rankguard_checkpoint::format::{ChunkDigest, ChunkLayout, Dtype, ShardIndex, TensorBox};
use rankguard_checkpoint::restore::assemble;
use rankguard_checkpoint::{Checkpoint, Store};
use serde::Serialize;
use serde_json::Value;

use crate::numbers::{ElementDistance, is_float};
use crate::pieces::pieces;
use crate::{ExchangeError, ProgressCallback};

/// Buffer size in bytes for each side of a byte comparison.
const BUFFER: u64 = 16 << 20;

/// Kind of difference of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorChange {
    /// The tensor is only in the second checkpoint.
    Added,
    /// The tensor is only in the first checkpoint.
    Removed,
    /// The element types differ.
    Retyped,
    /// The shapes differ.
    Reshaped,
    /// Type and shape are equal, the bytes differ.
    Changed,
}

impl TensorChange {
    /// Returns the kebab-case name that JSON uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Retyped => "retyped",
            Self::Reshaped => "reshaped",
            Self::Changed => "changed",
        }
    }
}

/// Element type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorType {
    pub dtype: Dtype,
    /// Global shape of the tensor.
    pub shape: Vec<u64>,
}

/// Tensor that differs between the two checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedTensor {
    pub name: String,
    pub change: TensorChange,
    /// Type and shape in the first checkpoint; `None` if it lacks the tensor.
    pub before: Option<TensorType>,
    /// Type and shape in the second checkpoint; `None` if it lacks the tensor.
    pub after: Option<TensorType>,
    /// Number of chunks; `None` unless digests were compared.
    pub chunks: Option<u64>,
    /// Number of chunks with different digests; `None` unless digests were compared.
    pub changed_chunks: Option<u64>,
    /// Number of elements with different bytes; `None` unless bytes were read.
    pub changed_elements: Option<u64>,
    /// Greatest absolute difference of two finite floating-point elements; `None` without such a pair, or unless bytes
    /// were read.
    pub max_abs: Option<f64>,
    /// Number of changed elements with an infinity or NaN on one side; `None` for other than floating-point types, or
    /// unless bytes were read.
    pub not_finite: Option<u64>,
}

/// Result of comparing two checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointDiff {
    /// Number of tensors that are bitwise equal.
    pub same: u64,
    /// Tensors that differ, sorted by name.
    pub differences: Vec<ChangedTensor>,
    /// Ranks that saved different non-tensor states or schema names, ascending.
    pub states: Vec<u32>,
}

/// Compares two checkpoints of one store. With `values`, the bytes of changed tensors are also read to measure the
/// difference. `progress` receives the number of compared tensors and of all tensors. Fails if bytes that are read do
/// not match the digests of their checkpoint, or cannot be read.
pub fn diff(
    store: &Store,
    before: &Checkpoint,
    after: &Checkpoint,
    values: bool,
    progress: ProgressCallback<'_>,
) -> Result<CheckpointDiff, ExchangeError> {
    let sides = [before, after].map(|checkpoint| DiffSide::new(checkpoint, store));
    let [first, second] = &sides;
    let names: std::collections::BTreeSet<&str> = first.tensors.keys().chain(second.tensors.keys()).copied().collect();
    let total = names.len() as u64;
    let mut found = CheckpointDiff {
        same: 0,
        differences: Vec::new(),
        states: states(before, after),
    };
    for (nth, name) in (1..).zip(names) {
        match compare(name, first, second, values)? {
            Some(difference) => found.differences.push(difference),
            None => found.same += 1,
        }
        progress(nth, total);
    }
    Ok(found)
}

/// Returns the ranks with different non-tensor states or schema names.
fn states(before: &Checkpoint, after: &Checkpoint) -> Vec<u32> {
    let ranks = before.indexes.len().max(after.indexes.len());
    let state = |checkpoint: &Checkpoint, rank: usize| {
        // A rank that is absent counts as a rank without a state.
        let index = checkpoint.indexes.get(rank);
        index.map_or((String::new(), Value::Null), |index| {
            (index.schema.clone(), index.state.clone())
        })
    };
    let differs = |rank: &usize| state(before, *rank) != state(after, *rank);
    (0..ranks).filter(differs).map(|rank| rank as u32).collect()
}

/// Chunk size in bytes and digests of each box of a tensor, by offset and shape of the box.
type DigestsByBox<'a> = BTreeMap<(&'a [u64], &'a [u64]), (u32, &'a [ChunkDigest])>;

/// Either checkpoint of a comparison. A tensor is stored with its first box and the digests of all boxes.
struct DiffSide<'a> {
    checkpoint: &'a Checkpoint,
    store: &'a Store,
    tensors: BTreeMap<&'a str, (&'a TensorBox, DigestsByBox<'a>)>,
}

impl<'a> DiffSide<'a> {
    fn new(checkpoint: &'a Checkpoint, store: &'a Store) -> Self {
        let mut side = Self {
            checkpoint,
            store,
            tensors: BTreeMap::new(),
        };
        checkpoint.indexes.iter().for_each(|index| side.add(index));
        side
    }

    fn add(&mut self, index: &'a ShardIndex) {
        let chunking: ChunkLayout = index.chunking();
        for (place, entry) in index.tensors.iter().enumerate() {
            let chunks = chunking.chunks_of(place);
            let digests = &index.chunks[chunks.start as usize..chunks.end as usize];
            let (_, boxes) = self
                .tensors
                .entry(&entry.boxed.name)
                .or_insert_with(|| (&entry.boxed, BTreeMap::new()));
            // A restore takes the first of equal boxes, so the comparison does too.
            boxes
                .entry((&entry.boxed.offset, &entry.boxed.shape))
                .or_insert((index.chunk_bytes, digests));
        }
    }

    fn kind(&self, name: &str) -> Option<TensorType> {
        let (boxed, _) = self.tensors.get(name)?;
        Some(TensorType {
            dtype: boxed.dtype,
            shape: boxed.global_shape.clone(),
        })
    }

    /// Reads a part of a tensor into `out`, which gets its length.
    fn read(&self, wanted: &TensorBox, out: &mut Vec<u8>) -> Result<(), ExchangeError> {
        out.resize(wanted.bytes().unwrap_or(0) as usize, 0);
        let Checkpoint { manifest, indexes, .. } = self.checkpoint;
        assemble(manifest, indexes, std::slice::from_ref(wanted), &[self.store], out)?;
        Ok(())
    }
}

/// Compares one tensor; `None` if it is equal in both checkpoints.
fn compare(
    name: &str,
    first: &DiffSide<'_>,
    second: &DiffSide<'_>,
    values: bool,
) -> Result<Option<ChangedTensor>, ExchangeError> {
    let before = first.kind(name);
    let after = second.kind(name);
    let change = match (&before, &after) {
        (None, _) => TensorChange::Added,
        (_, None) => TensorChange::Removed,
        (Some(one), Some(other)) if one.dtype != other.dtype => TensorChange::Retyped,
        (Some(one), Some(other)) if one.shape != other.shape => TensorChange::Reshaped,
        _ => TensorChange::Changed,
    };
    let mut difference = ChangedTensor {
        name: name.to_owned(),
        change,
        before,
        after,
        chunks: None,
        changed_chunks: None,
        changed_elements: None,
        max_abs: None,
        not_finite: None,
    };
    if change != TensorChange::Changed {
        return Ok(Some(difference));
    }
    let counted = by_digest(&first.tensors[name].1, &second.tensors[name].1);
    if let Some((chunks, changed)) = counted {
        if changed == 0 {
            return Ok(None);
        }
        (difference.chunks, difference.changed_chunks) = (Some(chunks), Some(changed));
    }
    if counted.is_none() || values {
        let boxed = first.tensors[name].0;
        let whole = TensorBox::whole(name, boxed.dtype, boxed.global_shape.clone());
        let distance = by_bytes(&whole, first, second)?;
        if distance.changed == 0 && counted.is_none() {
            return Ok(None);
        }
        difference.changed_elements = Some(distance.changed);
        difference.max_abs = distance.max_abs;
        difference.not_finite = is_float(boxed.dtype).then_some(distance.not_finite);
    }
    Ok(Some(difference))
}

/// Returns the number of chunks and of changed chunks; `None` if the boxes or the chunk sizes differ.
fn by_digest(before: &DigestsByBox<'_>, after: &DigestsByBox<'_>) -> Option<(u64, u64)> {
    if !before.keys().eq(after.keys()) {
        return None;
    }
    let mut chunks = 0;
    let mut changed = 0;
    for ((size, one), (other_size, other)) in before.values().zip(after.values()) {
        if size != other_size && one.len().max(other.len()) > 1 || one.len() != other.len() {
            return None;
        }
        chunks += one.len() as u64;
        changed += one.iter().zip(*other).filter(|(one, other)| one != other).count() as u64;
    }
    Some((chunks, changed))
}

/// Reads a tensor from both checkpoints, piece by piece, and measures the difference.
fn by_bytes(whole: &TensorBox, first: &DiffSide<'_>, second: &DiffSide<'_>) -> Result<ElementDistance, ExchangeError> {
    let mut distance = ElementDistance::default();
    let mut one = Vec::new();
    let mut other = Vec::new();
    for piece in pieces(whole, BUFFER) {
        first.read(&piece, &mut one)?;
        second.read(&piece, &mut other)?;
        distance.add(whole.dtype, &one, &other);
    }
    Ok(distance)
}
