//! Listing of checkpoints in an object store.

use futures_util::{StreamExt, TryStreamExt, stream};
use rankguard_checkpoint::Checkpoint;
use rankguard_checkpoint::format::{
    CheckpointId, Digest, LENT_FILE, MAX_INDEX_BYTES, MAX_MANIFEST_BYTES, Manifest, ShardIndex, check_job,
};
use rankguard_model::{JobId, Rank};

use super::{ObjectError, ObjectTier};

/// Committed checkpoint with its manifest, or the error of reading it.
pub type ListedCheckpoint = (CheckpointId, Result<Manifest, ObjectError>);

/// Checkpoints of a job in an object store.
#[derive(Debug, Default)]
pub struct ObjectListing {
    /// Manifests, or the errors of reading them, oldest first.
    pub manifests: Vec<ListedCheckpoint>,
    /// Checkpoints without a manifest, oldest first.
    pub torn: Vec<CheckpointId>,
    /// Removed checkpoints with shards of which later ones borrow chunks, oldest first.
    pub borrowed: Vec<CheckpointId>,
}

impl ObjectTier {
    /// Returns the jobs that have a folder, sorted by name.
    pub async fn jobs(&self) -> Result<Vec<JobId>, ObjectError> {
        let names = self.folders(None).await?;
        let jobs = names.iter().map(|name| JobId::from(name.as_str()));
        Ok(jobs.filter(|job| check_job(job).is_ok()).collect())
    }

    /// Returns the names of the folders directly below the base, or below a job.
    async fn folders(&self, job: Option<&JobId>) -> Result<Vec<String>, ObjectError> {
        let (prefix, url) = match job {
            Some(job) => (self.base.clone().join(job.as_str()), format!("{}/{job}", self.url)),
            None => (self.base.clone(), self.url.clone()),
        };
        let listed = self
            .send_request("list", &url, self.store.list_with_delimiter(Some(&prefix)))
            .await;
        let listed = match listed {
            Err(ObjectError::Missing { .. }) => return Ok(Vec::new()),
            other => other?,
        };
        let names = listed.common_prefixes.iter().filter_map(|path| path.filename());
        let mut names: Vec<String> = names.map(ToOwned::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the names of the objects directly in the folder of a checkpoint.
    pub(super) async fn names(&self, job: &JobId, id: CheckpointId) -> Result<Vec<String>, ObjectError> {
        let folder = self.base.clone().join(job.as_str()).join(id.to_string());
        let url = format!("{}/{job}/{id}", self.url);
        let listed = self.store.list(Some(&folder)).try_collect::<Vec<_>>();
        let listed = match self.send_request("list", &url, listed).await {
            Err(ObjectError::Missing { .. }) => return Ok(Vec::new()),
            other => other?,
        };
        let names = listed.iter().filter_map(|object| object.location.filename());
        Ok(names.map(ToOwned::to_owned).collect())
    }

    /// Returns the checkpoint folders of a job, oldest first; the flag is true if a manifest exists.
    pub(super) async fn attempts(&self, job: &JobId) -> Result<Vec<(CheckpointId, bool)>, ObjectError> {
        check_job(job)?;
        let names = self.folders(Some(job)).await?;
        let ids: Vec<CheckpointId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let looks = stream::iter(ids).map(|id| async move {
            let size = self.size(&self.manifest_place(job, id)?).await?;
            Ok::<_, ObjectError>((id, size.is_some()))
        });
        let mut found: Vec<_> = looks
            .buffer_unordered(self.limits.requests.max(1))
            .try_collect()
            .await?;
        found.sort();
        Ok(found)
    }

    /// Returns the committed checkpoints of a job (those with a manifest), oldest first. An unknown job has none.
    pub async fn committed(&self, job: &JobId) -> Result<Vec<CheckpointId>, ObjectError> {
        let attempts = self.attempts(job).await?;
        Ok(attempts
            .into_iter()
            .filter_map(|(id, committed)| committed.then_some(id))
            .collect())
    }

    /// Lists the checkpoints of a job.
    pub async fn listing(&self, job: &JobId) -> Result<ObjectListing, ObjectError> {
        let mut listing = ObjectListing::default();
        for (id, committed) in self.attempts(job).await? {
            if committed {
                match self.manifest(job, id).await {
                    Err(problem) if problem.is_remote() => return Err(problem),
                    manifest => listing.manifests.push((id, manifest)),
                }
            } else if self.size(&self.place(job, id, LENT_FILE)?).await?.is_none() {
                listing.torn.push(id);
            } else {
                listing.borrowed.push(id);
            }
        }
        Ok(listing)
    }

    /// Reads the manifest of a checkpoint.
    pub async fn manifest(&self, job: &JobId, id: CheckpointId) -> Result<Manifest, ObjectError> {
        let place = self.manifest_place(job, id)?;
        let bytes = self.read_small(&place, MAX_MANIFEST_BYTES).await?;
        let url = place.url;
        let manifest = Manifest::from_bytes(&bytes).map_err(|problem| ObjectError::Manifest {
            url: url.clone(),
            problem,
        })?;
        if manifest.job != *job || manifest.id() != id {
            let id = manifest.id();
            let job = manifest.job;
            return Err(ObjectError::Foreign { url, job, id });
        }
        Ok(manifest)
    }

    /// Reads a rank's index and compares it with the digest in the manifest; returns it with its bytes.
    pub(super) async fn index(&self, manifest: &Manifest, rank: Rank) -> Result<(ShardIndex, Vec<u8>), ObjectError> {
        let place = self.index_place(&manifest.job, manifest.id(), rank)?;
        let shard = manifest.shards.get(rank.0 as usize);
        let shard = shard.ok_or_else(|| ObjectError::Missing { url: place.url.clone() })?;
        let bytes = self.read_small(&place, MAX_INDEX_BYTES).await?;
        let url = place.url;
        let found = Digest::of(&bytes);
        if found != shard.index {
            let stated = shard.index;
            return Err(ObjectError::Digest { url, stated, found });
        }
        let index = ShardIndex::from_bytes(&bytes).map_err(|problem| ObjectError::Index {
            url: url.clone(),
            problem,
        })?;
        if index.job != manifest.job || index.id() != manifest.id() || index.rank != rank {
            let id = index.id();
            let job = index.job;
            return Err(ObjectError::Foreign { url, job, id });
        }
        Ok((index, bytes))
    }

    /// Reads a committed checkpoint: its manifest and indexes, compared with the digests in the manifest. Shard data is
    /// checked chunk by chunk when it is read.
    pub async fn checkpoint(&self, job: &JobId, id: CheckpointId) -> Result<Checkpoint, ObjectError> {
        let manifest = self.manifest(job, id).await?;
        let ranks: Vec<Rank> = manifest.shards.iter().map(|shard| shard.rank).collect();
        let reads = stream::iter(ranks).map(|rank| {
            let manifest = &manifest;
            async move { self.index(manifest, rank).await.map(|(index, _)| index) }
        });
        let indexes = reads.buffered(self.limits.requests.max(1)).try_collect().await?;
        Ok(Checkpoint { manifest, indexes })
    }

    /// Refuses a checkpoint if a higher generation has committed here (RG-3).
    pub(super) async fn refuse_stale(&self, job: &JobId, id: CheckpointId) -> Result<(), ObjectError> {
        let committed = self.committed(job).await?;
        match committed
            .into_iter()
            .rev()
            .find(|other| other.generation > id.generation)
        {
            None => Ok(()),
            Some(newer) => Err(ObjectError::Fenced {
                job: job.clone(),
                id,
                newer,
                url: format!("{}/{job}", self.url),
            }),
        }
    }
}
