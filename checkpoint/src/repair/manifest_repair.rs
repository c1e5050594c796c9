//! Repair of the manifest and of the indexes that it names by digest.

use std::path::PathBuf;

use rankguard_model::{Rank, with_causes};

use super::{CheckpointRepair, MirrorSource, RepairEntry};
use crate::format::{Digest, MAX_INDEX_BYTES, Manifest, ShardIndex};
use crate::store::{StoreError, StoreProblem, files};

/// State of the local manifest.
enum LocalManifest {
    Intact(Manifest),
    /// It is unreadable, or is missing although it was listed.
    Damaged(StoreError),
    /// The checkpoint was not committed here.
    Missing,
}

/// Manifest of a mirror, to be written after all indexes and images that it names are intact.
struct ManifestRewrite {
    bytes: Vec<u8>,
    /// Damage of the local manifest.
    what: String,
    /// Name of the mirror.
    from: String,
}

impl CheckpointRepair<'_> {
    /// Repairs the checkpoint. `committed`: a local manifest was listed; `asked`: the caller named the step, so that a
    /// checkpoint that only a mirror has is copied. Returns false if no manifest shows that it was committed.
    pub(super) fn checkpoint(&mut self, committed: bool, asked: bool) -> Result<bool, StoreError> {
        let path = self.store.manifest_path(self.job, self.id)?;
        let here = match self.store.manifest(self.job, self.id) {
            Ok(manifest) => LocalManifest::Intact(manifest),
            Err(error) if error.is_retryable() => return Err(error),
            Err(StoreError::Missing { .. }) if !committed => LocalManifest::Missing,
            Err(error) => LocalManifest::Damaged(error),
        };
        let elsewhere = match &here {
            LocalManifest::Intact(manifest) if self.can_be_whole(manifest)? => None,
            _ => self.manifest_elsewhere(&here, asked)?,
        };
        let what = match &here {
            LocalManifest::Intact(_) => "names an index that is nowhere".to_owned(),
            LocalManifest::Damaged(error) => with_causes(error),
            LocalManifest::Missing => "is missing".to_owned(),
        };
        let (manifest, renewed) = match (here, elsewhere) {
            (_, Some((manifest, bytes, from))) => (manifest, Some(ManifestRewrite { bytes, what, from })),
            (LocalManifest::Intact(manifest), None) => (manifest, None),
            (LocalManifest::Missing, None) => return Ok(false),
            (LocalManifest::Damaged(error), None) => {
                self.left.push(StoreProblem::of(self.id, path, None, &error));
                return Ok(true);
            }
        };
        files::ensure_dir(&self.store.job_dir(self.job)?)?;
        files::ensure_dir(&self.store.dir(self.job, self.id)?)?;
        for shard in &manifest.shards {
            if let Some(index) = self.index(shard.rank, shard.index)? {
                self.image(&index)?;
            }
        }
        if let Some(renewed) = renewed.filter(|_| self.left.is_empty()) {
            files::put_over(&path, &renewed.bytes)?;
            self.mended.push(RepairEntry {
                checkpoint: self.id,
                file: path,
                rank: None,
                chunk: None,
                tensors: Vec::new(),
                bytes: renewed.bytes.len() as u64,
                what: renewed.what,
                from: renewed.from,
            });
        }
        Ok(true)
    }

    /// Returns the digest of the local index of a rank; `None` if it is missing, damaged or of another shard.
    fn index_here(&self, rank: Rank) -> Result<Option<Digest>, StoreError> {
        let bytes = match files::read(&self.store.index_path(self.job, self.id, rank)?, MAX_INDEX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.is_retryable() => return Err(error),
            Err(_) => return Ok(None),
        };
        let ours = |index: ShardIndex| (&index.job, index.id(), index.rank) == (self.job, self.id, rank);
        let intact = ShardIndex::from_bytes(&bytes).is_ok_and(ours);
        Ok(intact.then(|| Digest::of(&bytes)))
    }

    /// Counts the intact local indexes with the digest that a manifest states, and those with another digest.
    fn votes(&self, manifest: &Manifest) -> Result<(usize, usize), StoreError> {
        let mut with = 0;
        let mut against = 0;
        for shard in &manifest.shards {
            match self.index_here(shard.rank)? {
                Some(digest) if digest == shard.index => with += 1,
                Some(_) => against += 1,
                None => {}
            }
        }
        Ok((with, against))
    }

    /// Returns true if every index exists with the digest that the manifest states, here or in a mirror.
    fn can_be_whole(&self, manifest: &Manifest) -> Result<bool, StoreError> {
        for shard in &manifest.shards {
            let there = |mirror: &&dyn MirrorSource| {
                let bytes = mirror.index_bytes(self.job, self.id, shard.rank);
                matches!(bytes, Ok(Some(bytes)) if Digest::of(&bytes) == shard.index)
            };
            if self.index_here(shard.rank)? != Some(shard.index) && !self.mirrors.iter().any(there) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the first manifest of a mirror that is intact, of this checkpoint and can be made whole, with its bytes
    /// and the mirror's name. Local indexes must support it, as the module documentation of `repair` describes.
    fn manifest_elsewhere(
        &self,
        here: &LocalManifest,
        asked: bool,
    ) -> Result<Option<(Manifest, Vec<u8>, String)>, StoreError> {
        for mirror in self.mirrors {
            let Ok(Some(bytes)) = mirror.manifest_bytes(self.job, self.id) else {
                continue;
            };
            let Ok(manifest) = Manifest::from_bytes(&bytes) else {
                continue;
            };
            if manifest.job != *self.job || manifest.id() != self.id || !self.can_be_whole(&manifest)? {
                continue;
            }
            let (with, against) = self.votes(&manifest)?;
            let fits = match here {
                LocalManifest::Intact(_) => true,
                LocalManifest::Damaged(_) => with >= against,
                LocalManifest::Missing => against == 0 && (with > 0 || asked),
            };
            if fits {
                return Ok(Some((manifest, bytes, mirror.name())));
            }
        }
        Ok(None)
    }

    /// Returns the index with this digest, and copies it from a mirror if necessary. Records a problem and returns
    /// `None` if no mirror has it.
    fn index(&mut self, rank: Rank, stated: Digest) -> Result<Option<ShardIndex>, StoreError> {
        let path = self.store.index_path(self.job, self.id, rank)?;
        let here = files::read(&path, MAX_INDEX_BYTES).and_then(|bytes| match Digest::of(&bytes) {
            found if found == stated => Ok(bytes),
            found => Err(StoreError::Digest {
                path: path.clone(),
                stated,
                found,
            }),
        });
        let problem = match here {
            Ok(bytes) => return Ok(self.read_index(&bytes, path, rank)),
            Err(problem) => problem,
        };
        for mirror in self.mirrors {
            let Ok(Some(bytes)) = mirror.index_bytes(self.job, self.id, rank) else {
                continue;
            };
            if Digest::of(&bytes) != stated {
                continue;
            }
            files::put_over(&path, &bytes)?;
            self.mended.push(RepairEntry {
                checkpoint: self.id,
                file: path.clone(),
                rank: Some(rank),
                chunk: None,
                tensors: Vec::new(),
                bytes: bytes.len() as u64,
                what: with_causes(&problem),
                from: mirror.name(),
            });
            return Ok(self.read_index(&bytes, path, rank));
        }
        self.left.push(StoreProblem::of(self.id, path, Some(rank), &problem));
        Ok(None)
    }

    /// Decodes an index with the expected digest. Records a problem and returns `None` if it is invalid or of another
    /// checkpoint.
    fn read_index(&mut self, bytes: &[u8], path: PathBuf, rank: Rank) -> Option<ShardIndex> {
        match ShardIndex::from_bytes(bytes) {
            Ok(index) if index.id() == self.id && index.rank == rank && index.job == *self.job => Some(index),
            // The bytes have the digest that the manifest states, so every copy in a mirror is the same.
            other => {
                let problem = match other {
                    Ok(index) => StoreError::Foreign {
                        path: path.clone(),
                        belongs: format!("job {}, checkpoint {}, rank {}", index.job, index.id(), index.rank),
                        expected: format!("job {}, checkpoint {}, rank {rank}", self.job, self.id),
                    },
                    Err(problem) => StoreError::Index {
                        path: path.clone(),
                        problem,
                    },
                };
                self.left.push(StoreProblem::of(self.id, path, Some(rank), &problem));
                None
            }
        }
    }
}
