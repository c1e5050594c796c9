//! Removal of checkpoints from an object store.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use rankguard_checkpoint::format::{CheckpointId, ChunkOrigin, LENT_FILE, index_file, shard_file};
use rankguard_model::JobId;
use serde::Serialize;

use super::share::ANNOUNCED_FILE;
use super::{ObjectError, ObjectLocation, ObjectTier};

/// Result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RemovalReport {
    /// Removed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// Removed uploads that were never committed and are older than a checkpoint.
    pub torn: Vec<CheckpointId>,
    /// Number of removed objects.
    pub objects: u64,
    /// Number of shards and indexes that are retained because a retained checkpoint borrows from them.
    pub borrowed: u64,
}

impl ObjectTier {
    /// Retains the newest `keep` checkpoints of a job (at least one) and those in `pinned`; removes the others, and
    /// uncommitted uploads older than the newest checkpoint. The manifest of each is removed first. Shards that a
    /// retained checkpoint borrows from are retained with their indexes. Removes nothing if an index of a retained
    /// checkpoint cannot be read, because its borrowed shards are then unknown.
    pub async fn retain(&self, job: &JobId, keep: u32, pinned: &[CheckpointId]) -> Result<RemovalReport, ObjectError> {
        let attempts = self.attempts(job).await?;
        let rollbacks = self.attempt_set(job).await?;
        let committed: Vec<CheckpointId> = attempts
            .iter()
            .filter(|(id, is)| *is && !rollbacks.is_superseded(*id))
            .map(|(id, _)| *id)
            .collect();
        let Some(newest) = committed.last().copied() else {
            return Ok(RemovalReport::default());
        };
        let old = committed.len().saturating_sub(keep.max(1) as usize);
        let kept: Vec<CheckpointId> = committed
            .iter()
            .enumerate()
            .filter(|(nth, id)| *nth >= old || pinned.contains(id))
            .map(|(_, id)| *id)
            .collect();
        let mut named: BTreeSet<ChunkOrigin> = BTreeSet::new();
        for id in &kept {
            let checkpoint = self.checkpoint(job, *id).await?;
            named.extend(
                checkpoint
                    .indexes
                    .iter()
                    .flat_map(|index| index.origins.iter().copied()),
            );
        }
        let mut removed = RemovalReport::default();
        for (id, is_committed) in attempts {
            // Checkpoints that a rollback supersedes are removed only after a checkpoint of the new attempt.
            let replaced = rollbacks.superseded_by(id).map(|first| newest.generation >= first);
            let goes = replaced.unwrap_or(if is_committed { !kept.contains(&id) } else { id < newest });
            if !goes {
                continue;
            }
            let (objects, borrowed) = self.remove_folder(job, id, &named).await?;
            removed.objects += objects + u64::from(is_committed);
            removed.borrowed += borrowed;
            if is_committed {
                removed.checkpoints.push(id);
            } else if objects > 0 {
                removed.torn.push(id);
            }
        }
        Ok(removed)
    }

    /// Removes this tier's objects in a folder, the manifest first; other objects are retained. Returns the numbers
    /// of removed and of retained shards and indexes.
    async fn remove_folder(
        &self,
        job: &JobId,
        id: CheckpointId,
        named: &BTreeSet<ChunkOrigin>,
    ) -> Result<(u64, u64), ObjectError> {
        if named.iter().any(|file| file.id() == id) {
            self.mark_lent(job, id).await?;
        }
        let manifest = self.manifest_place(job, id)?;
        self.remove_object(&manifest).await?;
        let stays: BTreeSet<String> = named
            .iter()
            .filter(|file| file.id() == id)
            .flat_map(|file| [shard_file(file.rank), index_file(file.rank)])
            .collect();
        let lends = !stays.is_empty();
        let ours = |name: &str| {
            let rank_file = name.starts_with("rank-") && (name.ends_with(".shard") || name.ends_with(".index"));
            rank_file || name == ANNOUNCED_FILE || name == LENT_FILE && !lends
        };
        let mut goes = Vec::new();
        let mut borrowed = 0;
        for name in self.names(job, id).await?.into_iter().filter(|name| ours(name)) {
            if stays.contains(&name) {
                borrowed += 1
            } else {
                goes.push(self.place(job, id, &name)?)
            }
        }
        let removals = stream::iter(&goes).map(|place| self.remove_object(place));
        let (): () = removals.buffer_unordered(self.requests()).try_collect().await?;
        Ok((goes.len() as u64, borrowed))
    }

    pub(super) async fn remove_object(&self, place: &ObjectLocation) -> Result<(), ObjectError> {
        use object_store::ObjectStoreExt;
        match self
            .send_request("remove", &place.url, self.store.delete(&place.path))
            .await
        {
            Ok(()) | Err(ObjectError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
