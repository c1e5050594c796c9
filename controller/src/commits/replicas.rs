//! Comparison of the replicas of a checkpoint before its manifest is written.

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, Manifest, ShardIndex};
use rankguard_checkpoint_schedule::replica_differences::judgement::{JudgedDifferences, judge};
use rankguard_checkpoint_schedule::replica_differences::{BoxReplica, ReplicaComparison, compare};
use rankguard_model::with_causes;
use tracing::info;

/// Differences that one commit reports: the first ones identify the machine, further ones add no information.
const DIFFERENCES_MAX: usize = 16;

/// Compares the replicas of a checkpoint, with those of its parent where they differ.
pub(super) fn compare_with_parent(store: &Store, manifest: &Manifest, indexes: &[ShardIndex]) -> JudgedDifferences {
    let now = comparison(indexes);
    if now.differing.is_empty() {
        return JudgedDifferences::default();
    }
    let before = manifest.parent.and_then(|(step, generation)| {
        let parent = CheckpointId { step, generation };
        let loaded = store.load(&manifest.job, parent);
        let loaded = loaded.inspect_err(|problem| {
            let job = &manifest.job;
            info!(%job, %parent, problem = with_causes(problem), "replicas are not compared with those before");
        });
        Some(comparison(&loaded.ok()?.indexes))
    });
    let mut judged = judge(now, before.as_ref());
    judged.wrong.truncate(DIFFERENCES_MAX);
    judged
}

/// Returns the first names, for an event.
pub(super) fn first_tensors(judged: &JudgedDifferences) -> Vec<String> {
    let mut tensors = judged.per_rank_tensors();
    tensors.truncate(DIFFERENCES_MAX);
    tensors
}

fn comparison(indexes: &[ShardIndex]) -> ReplicaComparison {
    let replicas = indexes.iter().flat_map(|index| {
        let chunking = index.chunking();
        index.tensors.iter().enumerate().map(move |(at, entry)| {
            let chunks = chunking.chunks_of(at);
            BoxReplica {
                rank: index.rank,
                tensor: &entry.boxed.name,
                offset: &entry.boxed.offset,
                shape: &entry.boxed.shape,
                chunk_bytes: u64::from(index.chunk_bytes),
                digests: &index.chunks[chunks.start as usize..chunks.end as usize],
            }
        })
    });
    compare(replicas)
}
