//! Listing and loading of the checkpoints in a store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;

use rankguard_model::{JobId, Rank, with_causes};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::format::{
    CheckpointId, ChunkOrigin, Digest, KnownChunks, MANIFEST_FILE, MAX_INDEX_BYTES, MAX_MANIFEST_BYTES, Manifest,
    ShardIndex, check_job,
};
use crate::store::disk::{self, FileOperation};
use crate::store::{Store, StoreError, files};
use crate::verify::verify_images;

/// Committed checkpoint with intact manifest and indexes, and images of the right size. Image content is verified chunk
/// by chunk when it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub manifest: Manifest,
    /// Indexes, sorted by rank.
    pub indexes: Vec<ShardIndex>,
}

impl Checkpoint {
    /// Returns the tensors that ranks saved with different or incomparable content, with a description of the
    /// difference.
    pub fn differing(&self) -> Vec<(String, String)> {
        let differences = crate::format::tensor_differences(&self.indexes).into_iter();
        let text = |found: crate::format::TensorDifference| {
            let (one, other) = found.ranks;
            let cause = format!("{} between rank {one} and rank {other}", found.cause);
            (found.name, cause)
        };
        differences.map(text).collect()
    }

    /// Returns the names of all tensors if any rank state has no schema, because such a state does not list its
    /// tensors.
    pub fn names_without_schema(&self) -> Vec<String> {
        if self.indexes.iter().all(|index| !index.schema.is_empty()) {
            return Vec::new();
        }
        let entries = self.indexes.iter().flat_map(|index| &index.tensors);
        let names: std::collections::BTreeSet<&str> = entries.map(|entry| entry.boxed.name.as_str()).collect();
        names.into_iter().map(str::to_owned).collect()
    }
}

/// Problem found in a store, with its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreProblem {
    /// Checkpoint, if the file belongs to one.
    pub checkpoint: Option<CheckpointId>,
    /// Path of the file or folder.
    pub file: PathBuf,
    /// Rank that wrote the file.
    pub rank: Option<Rank>,
    /// Number of the damaged chunk.
    pub chunk: Option<u32>,
    /// Tensors with bytes in that chunk.
    pub tensors: Vec<String>,
    /// Description of the problem.
    pub what: String,
}

impl fmt::Display for StoreProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Most store errors already contain the path.
        let file = self.file.display().to_string();
        if !self.what.contains(&file) {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.what)?;
        if let Some(rank) = self.rank {
            write!(f, " (rank {rank}")?;
            if let Some(chunk) = self.chunk {
                write!(f, ", chunk {chunk}, tensor {}", self.tensors.join(", "))?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl StoreProblem {
    pub(crate) fn of(checkpoint: CheckpointId, file: PathBuf, rank: Option<Rank>, error: &StoreError) -> Self {
        Self {
            checkpoint: Some(checkpoint),
            file: error.path().map_or(file, ToOwned::to_owned),
            rank,
            chunk: None,
            tensors: Vec::new(),
            what: with_causes(error),
        }
    }
}

/// Checkpoints of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckpointListing {
    /// Readable manifests, oldest first.
    pub manifests: Vec<Manifest>,
    /// Folders without a manifest, oldest first: in progress or torn.
    pub torn: Vec<CheckpointId>,
    /// Folders of removed checkpoints, oldest first: shards remain of which later checkpoints borrow chunks.
    pub borrowed: Vec<CheckpointId>,
    /// Manifests that cannot be read.
    pub problems: Vec<StoreProblem>,
}

/// Extent of verification before a checkpoint counts as good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyDepth {
    /// Manifest, indexes and image sizes: milliseconds. Damage inside an image is detected when it is read.
    Names,
    /// Every byte of the images.
    Bytes,
}

/// Newest good checkpoint of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct NewestCheckpoint {
    /// The checkpoint; `None` if no checkpoint is good.
    pub checkpoint: Option<Checkpoint>,
    /// Problems of newer checkpoints that were skipped.
    pub skipped: Vec<StoreProblem>,
}

impl Checkpoint {
    pub fn id(&self) -> CheckpointId {
        self.manifest.id()
    }
}

impl Store {
    /// Returns the jobs that have a folder.
    pub fn jobs(&self) -> Result<Vec<JobId>, StoreError> {
        let names = files::names(&self.root)?.unwrap_or_default();
        let jobs = names.iter().map(|name| JobId::from(name.as_str()));
        Ok(jobs
            .filter(|job| check_job(job).is_ok() && self.root.join(job.as_str()).is_dir())
            .collect())
    }

    /// Returns the folders of a job, oldest first, with true for those that have a manifest.
    pub(crate) fn folders(&self, job: &JobId) -> Result<Vec<(CheckpointId, bool)>, StoreError> {
        let dir = self.job_dir(job)?;
        let names = files::names(&dir)?.unwrap_or_default();
        let ids = names.iter().filter_map(|name| name.parse::<CheckpointId>().ok());
        let mut found = Vec::new();
        for id in ids {
            let path = dir.join(id.to_string()).join(MANIFEST_FILE);
            // Only a definite absence counts: a temporary disk error must not make a checkpoint torn.
            let committed = match disk::call(FileOperation::Stat, &path, || path.symlink_metadata()) {
                Ok(_) => true,
                Err(error) => match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => false,
                    _ => return Err(StoreError::io("look at", &path)(error)),
                },
            };
            found.push((id, committed));
        }
        found.sort();
        Ok(found)
    }

    /// Returns the checkpoints of a job that have a manifest, good or not, oldest first.
    pub fn committed_ids(&self, job: &JobId) -> Result<Vec<CheckpointId>, StoreError> {
        let folders = self.folders(job)?;
        Ok(folders
            .into_iter()
            .filter_map(|(id, committed)| committed.then_some(id))
            .collect())
    }

    /// Lists the checkpoints of a job; empty if the job has no folder.
    pub fn manifests(&self, job: &JobId) -> Result<CheckpointListing, StoreError> {
        let mut listing = CheckpointListing::default();
        for (id, committed) in self.folders(job)? {
            if !committed {
                if self.is_borrowed_from(job, id)? {
                    listing.borrowed.push(id);
                } else {
                    listing.torn.push(id);
                }
                continue;
            }
            match self.manifest(job, id) {
                Ok(manifest) => listing.manifests.push(manifest),
                Err(error) => {
                    let path = self.manifest_path(job, id)?;
                    listing.problems.push(StoreProblem::of(id, path, None, &error));
                }
            }
        }
        Ok(listing)
    }

    /// Reads and validates one manifest.
    pub fn manifest(&self, job: &JobId, id: CheckpointId) -> Result<Manifest, StoreError> {
        let path = self.manifest_path(job, id)?;
        let bytes = files::read(&path, MAX_MANIFEST_BYTES)?;
        let manifest = Manifest::from_bytes(&bytes).map_err(|problem| StoreError::Manifest {
            path: path.clone(),
            problem,
        })?;
        if manifest.job != *job || manifest.id() != id {
            return Err(StoreError::Foreign {
                path,
                belongs: format!("job {}, checkpoint {}", manifest.job, manifest.id()),
                expected: format!("job {job}, checkpoint {id}"),
            });
        }
        Ok(manifest)
    }

    /// Reads the index of a rank. Checks that it matches the manifest and its own shard file, and that the files it
    /// borrows from are long enough.
    pub fn load_index(&self, manifest: &Manifest, rank: Rank) -> Result<ShardIndex, StoreError> {
        let index = self.read_index(manifest, rank)?;
        self.check_files(&index)?;
        Ok(index)
    }

    /// Checks that the files that an index refers to exist and are long enough.
    pub(crate) fn check_files(&self, index: &ShardIndex) -> Result<(), StoreError> {
        let job = &index.job;
        let own = index.own();
        let mut ends = BTreeMap::from([(own, 0)]);
        for place in index.places() {
            let end: &mut u64 = ends.entry(place.file).or_default();
            *end = (*end).max(place.at + u64::from(place.bytes));
        }
        for (origin, end) in ends {
            let path = self.shard_path(job, origin.id(), origin.rank)?;
            let found = files::open(&path).map(|(_, bytes)| bytes);
            match found {
                Ok(found) if found == end || origin != own && found > end => {}
                Ok(found) if origin == own => {
                    let stated = end;
                    return Err(StoreError::Size { path, stated, found });
                }
                Err(error) if origin == own || error.failure().may_pass() => return Err(error),
                _ => {
                    let borrower = self.index_path(job, index.id(), index.rank)?;
                    return Err(StoreError::Origin {
                        path: borrower,
                        origin: path,
                    });
                }
            }
        }
        Ok(())
    }

    /// Reads the index of a rank and checks that it matches the manifest.
    pub(crate) fn read_index(&self, manifest: &Manifest, rank: Rank) -> Result<ShardIndex, StoreError> {
        let job = &manifest.job;
        let id = manifest.id();
        let path = self.index_path(job, id, rank)?;
        let shard = manifest.shards.get(rank.0 as usize);
        let shard = shard.ok_or_else(|| StoreError::Missing { path: path.clone() })?;
        let bytes = files::read(&path, MAX_INDEX_BYTES)?;
        let found = Digest::of(&bytes);
        if found != shard.index {
            let stated = shard.index;
            return Err(StoreError::Digest { path, stated, found });
        }
        let index = ShardIndex::from_bytes(&bytes).map_err(|problem| StoreError::Index {
            path: path.clone(),
            problem,
        })?;
        let place = |index: &ShardIndex| {
            let job = &index.job;
            let id = index.id();
            let rank = index.rank;
            format!("job {job}, checkpoint {id}, rank {rank} of {}", index.world_size)
        };
        let expected = format!("job {job}, checkpoint {id}, rank {rank} of {}", manifest.world_size);
        if place(&index) != expected {
            let belongs = place(&index);
            return Err(StoreError::Foreign {
                path,
                belongs,
                expected,
            });
        }
        if shard.bytes != index.image_bytes {
            let stated = shard.bytes;
            let found = index.image_bytes;
            return Err(StoreError::Size { path, stated, found });
        }
        Ok(index)
    }

    /// Returns the chunks that a new shard of `rank` can borrow: those of the same rank in the committed checkpoint
    /// `parent`. Empty if that cannot be read.
    pub fn known_chunks(&self, job: &JobId, parent: CheckpointId, rank: Rank) -> KnownChunks {
        let mut known = KnownChunks::default();
        let manifest = self.manifest(job, parent).ok();
        if let Some(index) = manifest.and_then(|manifest| self.load_index(&manifest, rank).ok()) {
            known.add(&index);
        }
        known
    }

    /// Drops the files of a checkpoint from the page cache if the filesystem supports it, so that the next reads go to
    /// the disk or server. Direct reads do not require it.
    pub fn drop_cached(&self, checkpoint: &Checkpoint) {
        let job = &checkpoint.manifest.job;
        let origins: BTreeSet<ChunkOrigin> = checkpoint
            .indexes
            .iter()
            .flat_map(|index| index.origins.iter().copied().chain([index.own()]))
            .collect();
        let paths = origins
            .iter()
            .filter_map(|file| self.shard_path(job, file.id(), file.rank).ok());
        for path in paths {
            if let Ok((file, _)) = files::open(&path) {
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
    }

    pub(crate) fn load_indexes(&self, manifest: &Manifest) -> Result<Vec<ShardIndex>, StoreError> {
        manifest
            .shards
            .iter()
            .map(|shard| self.load_index(manifest, shard.rank))
            .collect()
    }

    /// Loads one committed checkpoint, verified to [`Depth::Names`].
    pub fn load(&self, job: &JobId, id: CheckpointId) -> Result<Checkpoint, StoreError> {
        let manifest = self.manifest(job, id)?;
        let indexes = self.load_indexes(&manifest)?;
        Ok(Checkpoint { manifest, indexes })
    }

    /// Loads one committed checkpoint from its manifest and indexes alone, for a restore that may find the chunks
    /// elsewhere.
    pub fn describe(&self, job: &JobId, id: CheckpointId) -> Result<Checkpoint, StoreError> {
        let manifest = self.manifest(job, id)?;
        let ranks = manifest.shards.iter().map(|shard| shard.rank);
        let indexes = ranks
            .map(|rank| self.read_index(&manifest, rank))
            .collect::<Result<_, _>>()?;
        Ok(Checkpoint { manifest, indexes })
    }

    /// Returns the checkpoints of a job that have a manifest and that no later attempt of its run supersedes, oldest
    /// first.
    pub fn current_ids(&self, job: &JobId) -> Result<Vec<CheckpointId>, StoreError> {
        let attempts = self.attempts(job)?;
        let mut ids = self.committed_ids(job)?;
        ids.retain(|id| !attempts.is_superseded(*id));
        Ok(ids)
    }

    /// Returns the newest checkpoint that is good to `depth`, and the problems of newer ones that were skipped.
    pub fn newest(&self, job: &JobId, depth: VerifyDepth) -> Result<NewestCheckpoint, StoreError> {
        let mut skipped = Vec::new();
        for id in self.current_ids(job)?.into_iter().rev() {
            match self.load(job, id) {
                Ok(checkpoint) => {
                    let damage = match depth {
                        VerifyDepth::Names => Vec::new(),
                        VerifyDepth::Bytes => verify_images(self, &checkpoint)?,
                    };
                    if damage.is_empty() {
                        let checkpoint = Some(checkpoint);
                        return Ok(NewestCheckpoint { checkpoint, skipped });
                    }
                    skipped.extend(damage);
                }
                // A temporary disk error must not make an older checkpoint the newest.
                Err(error) if error.failure().may_pass() => return Err(error),
                Err(error) => skipped.push(StoreProblem::of(id, self.dir(job, id)?, None, &error)),
            }
        }
        Ok(NewestCheckpoint {
            checkpoint: None,
            skipped,
        })
    }
}
