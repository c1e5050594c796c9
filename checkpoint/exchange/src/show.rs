//! What a checkpoint holds.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint::Checkpoint;
use rankguard_checkpoint::format::{Dtype, ShardIndex, TensorBox};
use rankguard_model::RunId;
use serde::Serialize;
use serde_json::Value;

/// A checkpoint, from its manifest and indexes alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// Its job.
    pub job: String,
    /// The name of its folder.
    pub checkpoint: String,
    /// The run that wrote it; `None` where its manifest names none.
    pub run: Option<RunId>,
    /// The checkpoint it goes back to.
    pub parent: Option<String>,
    /// Ranks that wrote it.
    pub world_size: u32,
    /// Bytes of all tensors, each counted once, whole.
    pub tensor_bytes: u64,
    /// Bytes of all ranks' images: replicas count as often as there are.
    pub image_bytes: u64,
    /// Bytes of its own shard files.
    pub stored_bytes: u64,
    /// Images over own files: how often a byte on disk is used. `None` where nothing is its own.
    pub dedupe_ratio: Option<f64>,
    /// Where its bytes lie: in its own files and in those of others.
    pub origins: Vec<OriginShown>,
    /// Its ranks.
    pub ranks: Vec<RankShown>,
    /// Its tensors, by name.
    pub tensors: Vec<TensorShown>,
}

/// A file that holds chunks of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OriginShown {
    /// The checkpoint whose folder it is in.
    pub checkpoint: String,
    /// The rank that wrote it.
    pub rank: u32,
    /// Uses of its chunks.
    pub chunks: u64,
    /// Bytes of those.
    pub bytes: u64,
}

/// A rank's shard.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankShown {
    /// The rank.
    pub rank: u32,
    /// Parts of tensors in its image.
    pub tensors: u64,
    /// Size of its image.
    pub image_bytes: u64,
    /// Size of its own file.
    pub stored_bytes: u64,
    /// Chunks of its image.
    pub chunks: u64,
    /// Those that lie in other files.
    pub borrowed_chunks: u64,
    /// What the rank calls its state.
    pub schema: String,
    /// Its small state.
    pub state: Value,
}

/// A tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorShown {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Its shape, whole.
    pub shape: Vec<u64>,
    /// Different parts of it.
    pub boxes: u64,
    /// Ranks that hold one.
    pub ranks: Vec<u32>,
    /// Bytes of the whole.
    pub bytes: u64,
    /// Bytes of all parts on all ranks.
    pub held_bytes: u64,
    /// What differs from rank to rank; absent where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// Describes a checkpoint; reads none of its images.
pub fn show(checkpoint: &Checkpoint) -> Shown {
    let manifest = &checkpoint.manifest;
    let ranks: Vec<RankShown> = checkpoint.indexes.iter().map(rank).collect();
    let tensors = tensors(checkpoint);
    let image_bytes = manifest.bytes();
    let stored_bytes = ranks
        .iter()
        .fold(0u64, |sum, rank| sum.saturating_add(rank.stored_bytes));
    let parent = manifest.parent.map(|(step, generation)| {
        let id = rankguard_checkpoint::format::CheckpointId { step, generation };
        id.to_string()
    });
    Shown {
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

fn rank(index: &ShardIndex) -> RankShown {
    RankShown {
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

fn origins(indexes: &[ShardIndex]) -> Vec<OriginShown> {
    let mut found = BTreeMap::new();
    for place in indexes.iter().flat_map(ShardIndex::places) {
        let (chunks, bytes) = found.entry((place.file.id(), place.file.rank)).or_insert((0u64, 0u64));
        *chunks += 1;
        *bytes += u64::from(place.bytes);
    }
    let shown = found.into_iter().map(|((id, rank), (chunks, bytes))| OriginShown {
        checkpoint: id.to_string(),
        rank: rank.0,
        chunks,
        bytes,
    });
    shown.collect()
}

fn tensors(checkpoint: &Checkpoint) -> Vec<TensorShown> {
    let (indexes, mut differing) = (&checkpoint.indexes, BTreeMap::from_iter(checkpoint.differing()));
    struct Found<'a> {
        first: &'a TensorBox,
        boxes: BTreeSet<(&'a [u64], &'a [u64])>,
        ranks: BTreeSet<u32>,
        held: u64,
    }
    let mut found: BTreeMap<&str, Found<'_>> = BTreeMap::new();
    for (index, entry) in indexes
        .iter()
        .flat_map(|index| index.tensors.iter().map(move |entry| (index, entry)))
    {
        let boxed = &entry.boxed;
        let tensor = found.entry(&boxed.name).or_insert(Found {
            first: boxed,
            boxes: BTreeSet::new(),
            ranks: BTreeSet::new(),
            held: 0,
        });
        tensor.boxes.insert((&boxed.offset, &boxed.shape));
        tensor.ranks.insert(index.rank.0);
        tensor.held = tensor.held.saturating_add(boxed.bytes().unwrap_or(0));
    }
    let shown = found.into_iter().map(|(name, tensor)| TensorShown {
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
