//! Parity as a source of repairs: rebuilds lost or damaged shards of a store, and holds copies of the small files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_checkpoint::failure::SourceFailure;
use rankguard_checkpoint::format::{CheckpointId, index_file};
use rankguard_checkpoint::repair::MirrorSource;
use rankguard_checkpoint::source::{ChunkError, ChunkId, ChunkSource, SourceTier};
use rankguard_checkpoint::{Checkpoint, ReadFailure, Store};
use rankguard_model::{JobId, Rank, with_causes};

use super::ParityError;
use super::files::{ParityTempFile, degraded_group, descriptor_files, io_error, read_descriptor};
use super::group::DegradedGroup;

/// Copy of the manifest beside the parity of a checkpoint.
const MANIFEST_COPY: &str = "manifest";
/// Checkpoints with open groups; each holds the files of all its members open.
const OPEN_MAX: usize = 4;

/// Groups of one checkpoint.
type CheckpointGroups = Arc<Vec<DegradedGroup<'static>>>;

/// Parity below a directory, for [`rankguard_checkpoint::repair::repair`], which verifies all that it gets.
#[derive(Debug)]
pub struct ParityMirror {
    store: Store,
    root: PathBuf,
    groups: Mutex<BTreeMap<(JobId, CheckpointId), CheckpointGroups>>,
}

impl ParityMirror {
    /// Returns the parity below `root` of the shards in `store`.
    pub fn new(store: &Store, root: &Path) -> Self {
        Self {
            store: store.clone(),
            root: root.to_owned(),
            groups: Mutex::default(),
        }
    }

    fn folder(&self, job: &JobId, id: CheckpointId) -> PathBuf {
        self.root.join(job.as_str()).join(id.to_string())
    }

    /// Returns the groups of a checkpoint. A group with an unreadable descriptor is left out.
    fn groups(&self, job: &JobId, id: CheckpointId) -> Result<CheckpointGroups, ParityError> {
        let mut open = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (job.clone(), id);
        if let Some(groups) = open.get(&key) {
            return Ok(groups.clone());
        }
        if open.len() >= OPEN_MAX {
            open.pop_first();
        }
        let mut groups = Vec::new();
        for path in descriptor_files(&self.folder(job, id))? {
            match read_descriptor(&path) {
                Ok(descriptor) if descriptor.job == *job => {
                    groups.push(degraded_group(&self.store, descriptor, &path)?)
                }
                _ => {}
            }
        }
        let groups = Arc::new(groups);
        open.insert(key, groups.clone());
        Ok(groups)
    }

    /// Reads a chunk as its parity restores it; `None` if no group covers it.
    fn restored_chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ParityError> {
        // A chunk may be stored in the file of an earlier checkpoint, which has parity of its own.
        let groups = self.groups(&id.job, id.place.file.id())?;
        let found = groups
            .iter()
            .find_map(|group| Some((group, group.place(id.place.file)?)));
        let Some((group, member)) = found else {
            return Ok(None);
        };
        let mut bytes = vec![0; id.place.bytes as usize];
        group.read(member, id.place.at, &mut bytes)?;
        Ok(Some(bytes))
    }

    fn copy(&self, job: &JobId, id: CheckpointId, name: &str) -> Result<Option<Vec<u8>>, ChunkError> {
        let path = self.folder(job, id).join(name);
        match fs::read(&path) {
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(read.map_err(io_error("read", &path))?)),
        }
    }
}

impl ChunkSource for ParityMirror {
    fn tier(&self) -> SourceTier {
        SourceTier::Disk
    }

    fn name(&self) -> String {
        format!("parity in {}", self.root.display())
    }

    /// An error proves nothing about the store: parity is an addition to it, so its absence or failure makes the store
    /// neither better nor unreadable.
    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        self.restored_chunk(id).map_err(|problem| {
            let failure = SourceFailure {
                failure: ReadFailure::Missing,
                text: with_causes(&problem),
            };
            failure.into()
        })
    }
}

impl MirrorSource for ParityMirror {
    /// Returns nothing: parity without the other shards restores no checkpoint.
    fn committed(&self, _job: &JobId) -> Result<Vec<CheckpointId>, ChunkError> {
        Ok(Vec::new())
    }

    fn manifest_bytes(&self, job: &JobId, id: CheckpointId) -> Result<Option<Vec<u8>>, ChunkError> {
        self.copy(job, id, MANIFEST_COPY)
    }

    fn index_bytes(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Option<Vec<u8>>, ChunkError> {
        self.copy(job, id, &index_file(rank))
    }
}

/// Copies the manifest and the indexes of a checkpoint to the folder of its parity, unless they are there. Without an
/// index no byte of its shard can be verified, so parity alone would not bring back a lost rank.
pub(super) fn copy_records(store: &Store, checkpoint: &Checkpoint, folder: &Path) -> Result<(), ParityError> {
    let job = &checkpoint.manifest.job;
    let id = checkpoint.id();
    let mut copies = vec![(store.manifest_path(job, id)?, MANIFEST_COPY.to_owned())];
    for shard in &checkpoint.manifest.shards {
        copies.push((store.index_path(job, id, shard.rank)?, index_file(shard.rank)));
    }
    for (source, name) in copies {
        let target = folder.join(name);
        if target.exists() {
            continue;
        }
        let bytes = fs::read(&source).map_err(io_error("read", &source))?;
        ParityTempFile::start(target)?.put_bytes(&bytes)?;
    }
    Ok(())
}
