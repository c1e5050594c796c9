//! Description of the content of a checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint::Checkpoint;
use rankguard_checkpoint::format::{Dtype, ShardIndex, TensorBox};
use rankguard_model::RunId;
use serde::Serialize;
use serde_json::Value;

/// Content of a checkpoint, from its manifest and indexes alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointSummary {
    pub job: String,
    /// Name of the checkpoint's folder.
    pub checkpoint: String,
    /// Run that wrote the checkpoint; `None` if the manifest names none.
    pub run: Option<RunId>,
    /// Folder name of the parent checkpoint; `None` without one.
    pub parent: Option<String>,
    /// Number of ranks that wrote the checkpoint.
    pub world_size: u32,
    /// Size of all tensors in bytes, each counted once at its global shape.
    pub tensor_bytes: u64,
    /// Size of all rank images in bytes. A tensor that several ranks hold is counted once for each.
    pub image_bytes: u64,
    /// Size in bytes of the checkpoint's own shard files, without chunks in files of earlier checkpoints.
    pub stored_bytes: u64,
    /// `image_bytes` over `stored_bytes`; above 1 if chunks are stored in other shard files. `None` if the checkpoint
    /// has no own files.
    pub dedupe_ratio: Option<f64>,
    /// Shard files that hold its chunks: its own and those of earlier checkpoints.
    pub origins: Vec<OriginSummary>,
    pub ranks: Vec<RankSummary>,
    /// Tensors, sorted by name.
    pub tensors: Vec<TensorSummary>,
}

/// Shard file that holds chunks of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OriginSummary {
    /// Name of the checkpoint folder that contains the file.
    pub checkpoint: String,
    /// Rank that wrote the file.
    pub rank: u32,
    /// Number of chunk references into the file.
    pub chunks: u64,
    /// Size of those chunks in bytes.
    pub bytes: u64,
}

/// Shard of one rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankSummary {
    pub rank: u32,
    /// Number of tensor boxes in the image.
    pub tensors: u64,
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Size of the rank's own shard file in bytes.
    pub stored_bytes: u64,
    /// Number of chunks in the image.
    pub chunks: u64,
    /// Number of chunks of the image that are stored in other shard files.
    pub borrowed_chunks: u64,
    /// Schema name of the rank's state; empty without one.
    pub schema: String,
    /// Non-tensor state of the rank.
    pub state: Value,
}

/// Tensor of the checkpoint, across all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorSummary {
    pub name: String,
    pub dtype: Dtype,
    /// Global shape of the tensor.
    pub shape: Vec<u64>,
    /// Number of boxes with different offset or shape.
    pub boxes: u64,
    /// Ranks that hold at least one box.
    pub ranks: Vec<u32>,
    /// Size of the whole tensor in bytes.
    pub bytes: u64,
    /// Size in bytes of the boxes on all ranks; equal boxes are counted once for each rank.
    pub held_bytes: u64,
    /// Difference between the boxes of two ranks, such as `different content between rank 0 and rank 1`; absent if all
    /// agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// Describes a checkpoint from its manifest and indexes; no image is read.
pub fn show(checkpoint: &Checkpoint) -> CheckpointSummary {
    let manifest = &checkpoint.manifest;
    let ranks: Vec<RankSummary> = checkpoint.indexes.iter().map(rank).collect();
    let tensors = tensors(checkpoint);
    let image_bytes = manifest.bytes();
    let stored_bytes = ranks
        .iter()
        .fold(0u64, |sum, rank| sum.saturating_add(rank.stored_bytes));
    let parent = manifest.parent.map(|(step, generation)| {
        let id = rankguard_checkpoint::format::CheckpointId { step, generation };
        id.to_string()
    });
    CheckpointSummary {
        job: manifest.job.to_string(),
        checkpoint: manifest.id().to_string(),
        run: manifest.run.clone(),
        parent,
        world_size: manifest.world_size,
        tensor_bytes: tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.bytes)),
        image_bytes,
        stored_bytes,
        dedupe_ratio: (stored_bytes > 0).then(|| image_bytes as f64 / stored_bytes as f64),
        origins: origins(&checkpoint.indexes),
        ranks,
        tensors,
    }
}

fn rank(index: &ShardIndex) -> RankSummary {
    RankSummary {
        rank: index.rank.0,
        tensors: index.tensors.len() as u64,
        image_bytes: index.image_bytes,
        stored_bytes: index.file_bytes(),
        chunks: index.chunks.len() as u64,
        borrowed_chunks: index.borrowed.iter().map(|run| u64::from(run.count)).sum(),
        schema: index.schema.clone(),
        state: index.state.clone(),
    }
}

/// Counts the chunks and bytes in each shard file, sorted by checkpoint and rank.
fn origins(indexes: &[ShardIndex]) -> Vec<OriginSummary> {
    let mut found = BTreeMap::new();
    for place in indexes.iter().flat_map(ShardIndex::places) {
        let (chunks, bytes) = found.entry((place.file.id(), place.file.rank)).or_insert((0u64, 0u64));
        *chunks += 1;
        *bytes += u64::from(place.bytes);
    }
    let shown = found.into_iter().map(|((id, rank), (chunks, bytes))| OriginSummary {
        checkpoint: id.to_string(),
        rank: rank.0,
        chunks,
        bytes,
    });
    shown.collect()
}

fn tensors(checkpoint: &Checkpoint) -> Vec<TensorSummary> {
    let indexes = &checkpoint.indexes;
    let mut differing = BTreeMap::from_iter(checkpoint.differing());
    struct TensorUsage<'a> {
        first: &'a TensorBox,
        boxes: BTreeSet<(&'a [u64], &'a [u64])>,
        ranks: BTreeSet<u32>,
        held: u64,
    }
    let mut found: BTreeMap<&str, TensorUsage<'_>> = BTreeMap::new();
    for (index, entry) in indexes
        .iter()
        .flat_map(|index| index.tensors.iter().map(move |entry| (index, entry)))
    {
        let boxed = &entry.boxed;
        let tensor = found.entry(&boxed.name).or_insert(TensorUsage {
            first: boxed,
            boxes: BTreeSet::new(),
            ranks: BTreeSet::new(),
            held: 0,
        });
        tensor.boxes.insert((&boxed.offset, &boxed.shape));
        tensor.ranks.insert(index.rank.0);
        tensor.held = tensor.held.saturating_add(boxed.bytes().unwrap_or(0));
    }
    let shown = found.into_iter().map(|(name, tensor)| TensorSummary {
        name: name.to_owned(),
        dtype: tensor.first.dtype,
        shape: tensor.first.global_shape.clone(),
        boxes: tensor.boxes.len() as u64,
        ranks: tensor.ranks.into_iter().collect(),
        bytes: TensorBox::whole(name, tensor.first.dtype, tensor.first.global_shape.clone())
            .bytes()
            .unwrap_or(0),
        held_bytes: tensor.held,
        differs: differing.remove(name),
    });
    shown.collect()
}
