//! Writing good copies over damaged ones: the one place where something that was committed is written again.
//!
//! What is good is what the manifest vouches for: it names each index by digest, an index names each chunk by digest. So
//! a copy is taken from a [`Mirror`] only after its digest was found to be the stated one, whoever gave it, and a byte
//! that has the right digest is never written. Chunks are written in place and nothing else of their file is touched;
//! small files come whole under a temporary name. The manifest comes last, when everything it names is whole (RG-1).
//!
//! A manifest has nobody above it. A mirror's is taken when it is intact, is of this very checkpoint, can be made whole, and
//! - ours is damaged, and not more of the intact indexes that stand here speak against the mirror's than for it; or
//! - ours is intact but names an index that is neither here nor in any mirror: it can never load (a stale one); or
//! - ours is missing, and the mirror's names an index that stands here, or the step was asked for. Without either, the
//!   checkpoint was removed or never committed, and is left so.
//!
//! A restore that is given [`Healing`] instead of the store does the same in passing, for the chunks that it needed.
//!
//! Absent: undoing a removal by itself, and judging which of two whole checkpoints of one name is the true one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rankguard_model::{JobId, Rank, Step};
use serde::Serialize;

use crate::format::{
    CheckpointId, ChunkDigest, ChunkPlace, Digest, MAX_INDEX_BYTES, MAX_MANIFEST_BYTES, Manifest, Origin, ShardIndex,
    TENSOR_ALIGN,
};
use crate::source::{Answer, ChunkError, ChunkId, ChunkSource, Tier};
use crate::store::direct::{Aligned, Reader};
use crate::store::{Problem, Store, StoreError, files, runs};
use crate::verify::verify_one;

/// Another place that holds copies of whole checkpoints. What it gives is checked, so it need not be trusted.
pub trait Mirror: ChunkSource {
    /// Checkpoints of a job that it holds, oldest first.
    fn committed(&self, job: &JobId) -> Result<Vec<CheckpointId>, ChunkError>;

    /// Content of a manifest; `None` when it has none.
    fn manifest_bytes(&self, job: &JobId, id: CheckpointId) -> Result<Option<Vec<u8>>, ChunkError>;

    /// Content of a rank's index; `None` when it has none.
    fn index_bytes(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Option<Vec<u8>>, ChunkError>;
}

/// Something that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mended {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The file.
    pub file: PathBuf,
    /// The rank, where the file is a rank's.
    pub rank: Option<Rank>,
    /// The chunk; `None` for a whole file.
    pub chunk: Option<u32>,
    /// Tensors with bytes in that chunk.
    pub tensors: Vec<String>,
    /// Bytes written.
    pub bytes: u64,
    /// What was wrong.
    pub what: String,
    /// Where the good copy came from.
    pub from: String,
}

/// What a repair did, and what it could not do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Checkpoints that were looked at, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// What was written.
    pub mended: Vec<Mended>,
    /// What is still wrong: no mirror has a good copy, or it could not be written.
    pub left: Vec<Problem>,
    /// Folders without a manifest that no mirror vouches for: being written, or torn. They were left alone.
    pub torn: Vec<CheckpointId>,
}

/// Reads every committed checkpoint of a job, or those of one step, and writes good copies from `mirrors` (asked in that
/// order) over what is damaged or missing. With a step, a checkpoint that only a mirror has is brought back whole.
pub fn repair(store: &Store, mirrors: &[&dyn Mirror], job: &JobId, step: Option<Step>) -> Result<Repaired, StoreError> {
    let mut ids: BTreeMap<CheckpointId, bool> = store.folders(job)?.into_iter().collect();
    if let Some(step) = step {
        ids.retain(|id, _| id.step == step);
        for mirror in mirrors {
            // A mirror that cannot be listed may still give what is asked of it by name.
            let theirs = mirror.committed(job).unwrap_or_default();
            for id in theirs.into_iter().filter(|id| id.step == step) {
                ids.entry(id).or_insert(false);
            }
        }
    }
    let mut repaired = Repaired::default();
    for (id, committed) in ids {
        let mut work = Work {
            store,
            mirrors,
            job,
            id,
            mended: Vec::new(),
            left: Vec::new(),
        };
        if work.checkpoint(committed, step.is_some())? {
            repaired.checkpoints.push(id);
        } else {
            repaired.torn.push(id);
        }
        if !work.mended.is_empty() && work.left.is_empty() {
            // What was written is read again, with everything beside it: nothing is called whole on trust.
            work.left = verify_one(store, job, id, &mut |_| {})?.1;
        }
        repaired.mended.append(&mut work.mended);
        repaired.left.append(&mut work.left);
    }
    Ok(repaired)
}

/// The repair of one checkpoint.
struct Work<'a> {
    store: &'a Store,
    mirrors: &'a [&'a dyn Mirror],
    job: &'a JobId,
    id: CheckpointId,
    mended: Vec<Mended>,
    left: Vec<Problem>,
}

/// The manifest that stands here.
enum Here {
    Intact(Manifest),
    Damaged(StoreError),
    Missing,
}

/// A manifest that is to be put in place when everything else is whole.
struct Renewed {
    bytes: Vec<u8>,
    what: String,
    from: String,
}

impl Work<'_> {
    /// Whether it is a checkpoint at all.
    fn checkpoint(&mut self, committed: bool, asked: bool) -> Result<bool, StoreError> {
        let path = self.store.manifest_path(self.job, self.id)?;
        let here = match self.store.manifest(self.job, self.id) {
            Ok(manifest) => Here::Intact(manifest),
            Err(error) if error.is_retryable() => return Err(error),
            Err(StoreError::Missing { .. }) if !committed => Here::Missing,
            Err(error) => Here::Damaged(error),
        };
        let elsewhere = match &here {
            Here::Intact(manifest) if self.can_be_whole(manifest)? => None,
            _ => self.manifest_elsewhere(&here, asked)?,
        };
        let what = match &here {
            Here::Intact(_) => "names an index that is nowhere".to_owned(),
            Here::Damaged(error) => crate::store::chain(error),
            Here::Missing => "is missing".to_owned(),
        };
        let (manifest, renewed) = match (here, elsewhere) {
            (_, Some((manifest, bytes, from))) => (manifest, Some(Renewed { bytes, what, from })),
            (Here::Intact(manifest), None) => (manifest, None),
            (Here::Missing, None) => return Ok(false),
            (Here::Damaged(error), None) => {
                self.left.push(Problem::of(self.id, path, None, &error));
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
            self.mended.push(Mended {
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

    /// The index that stands here for a rank, by digest: `None` when none does, or it is damaged or another's.
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

    /// How many of the intact indexes that stand here a manifest names, and how many it does not.
    fn votes(&self, manifest: &Manifest) -> Result<(usize, usize), StoreError> {
        let (mut with, mut against) = (0, 0);
        for shard in &manifest.shards {
            match self.index_here(shard.rank)? {
                Some(digest) if digest == shard.index => with += 1,
                Some(_) => against += 1,
                None => {}
            }
        }
        Ok((with, against))
    }

    /// Whether every index it names is somewhere, here or in a mirror.
    fn can_be_whole(&self, manifest: &Manifest) -> Result<bool, StoreError> {
        for shard in &manifest.shards {
            let there = |mirror: &&dyn Mirror| {
                let bytes = mirror.index_bytes(self.job, self.id, shard.rank);
                matches!(bytes, Ok(Some(bytes)) if Digest::of(&bytes) == shard.index)
            };
            if self.index_here(shard.rank)? != Some(shard.index) && !self.mirrors.iter().any(there) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A mirror's manifest of this checkpoint that can be made whole.
    fn manifest_elsewhere(&self, here: &Here, asked: bool) -> Result<Option<(Manifest, Vec<u8>, String)>, StoreError> {
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
                Here::Intact(_) => true,
                Here::Damaged(_) => with >= against,
                Here::Missing => against == 0 && (with > 0 || asked),
            };
            if fits {
                return Ok(Some((manifest, bytes, mirror.name())));
            }
        }
        Ok(None)
    }

    /// The index with this digest, put in place where it was not; `None`, and said so, when nobody has it.
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
            self.mended.push(Mended {
                checkpoint: self.id,
                file: path.clone(),
                rank: Some(rank),
                chunk: None,
                tensors: Vec::new(),
                bytes: bytes.len() as u64,
                what: crate::store::chain(&problem),
                from: mirror.name(),
            });
            return Ok(self.read_index(&bytes, path, rank));
        }
        self.left.push(Problem::of(self.id, path, Some(rank), &problem));
        Ok(None)
    }

    fn read_index(&mut self, bytes: &[u8], path: PathBuf, rank: Rank) -> Option<ShardIndex> {
        match ShardIndex::from_bytes(bytes) {
            Ok(index) if index.id() == self.id && index.rank == rank && index.job == *self.job => Some(index),
            // The very index that was committed, and still none of this checkpoint: no mirror can have a better one.
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
                self.left.push(Problem::of(self.id, path, Some(rank), &problem));
                None
            }
        }
    }

    /// Every chunk of an image, wherever it lies, and the length of its own file.
    fn image(&mut self, index: &ShardIndex) -> Result<(), StoreError> {
        let mut damaged: BTreeMap<Origin, BTreeMap<u32, String>> = BTreeMap::new();
        let mut buffer = Aligned::default();
        for run in runs::of((0u32..).zip(index.places()).collect()) {
            let path = self.store.shard_path(self.job, run.file.id(), run.file.rank)?;
            let reader = Reader::open(&path);
            let read = reader.map_err(|error| crate::store::chain(&error)).and_then(|reader| {
                let read = reader.read(&run.range(reader.bytes()), &mut buffer);
                read.map(|bytes| run.damage(index, bytes))
                    .map_err(|error| format!("cannot be read: {error}"))
            });
            let found = match read {
                Ok(found) => found,
                // Not all of it is lost: what is good is found out chunk by chunk.
                Err(_) if run.chunks.len() > 1 => self.one_by_one(index, &path, run.chunks.clone(), &mut buffer),
                Err(what) => vec![(run.chunks[0].0, what)],
            };
            damaged.entry(run.file).or_default().extend(found);
        }
        let own = index.own();
        damaged.entry(own).or_default();
        for (file, chunks) in damaged {
            let length = (file == own).then(|| index.file_bytes());
            self.file(index, file, length, &chunks)?;
        }
        Ok(())
    }

    fn one_by_one(
        &self,
        index: &ShardIndex,
        path: &Path,
        chunks: Vec<(u32, ChunkPlace)>,
        buffer: &mut Aligned,
    ) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for run in chunks.into_iter().flat_map(|chunk| runs::of(vec![chunk])) {
            let read = Reader::open(path)
                .map_err(|error| crate::store::chain(&error))
                .and_then(|reader| {
                    let read = reader.read(&run.range(reader.bytes()), buffer);
                    read.map(|bytes| run.damage(index, bytes))
                        .map_err(|error| format!("cannot be read: {error}"))
                });
            match read {
                Ok(damage) => found.extend(damage),
                Err(what) => found.push((run.chunks[0].0, what)),
            }
        }
        found
    }

    /// Writes good copies of `chunks` of `index` into the file that keeps them. `length` is what the file has to have; a file
    /// of another checkpoint may be longer than what this one borrows from it.
    fn file(
        &mut self,
        index: &ShardIndex,
        file: Origin,
        length: Option<u64>,
        chunks: &BTreeMap<u32, String>,
    ) -> Result<(), StoreError> {
        let path = self.store.shard_path(self.job, file.id(), file.rank)?;
        let (chunking, places) = (index.chunking(), index.places());
        let (mut parts, mut mended) = (Vec::new(), Vec::new());
        for (chunk, what) in chunks {
            let place = places[*chunk as usize];
            let id = ChunkId {
                job: self.job.clone(),
                checkpoint: index.id(),
                rank: index.rank,
                chunk: *chunk,
                at: chunking.range(*chunk).map_or(0, |range| range.start),
                place,
                digest: index.chunks[*chunk as usize],
            };
            let tensors = vec![index.tensor_in(*chunk).to_owned()];
            let Some((bytes, from)) = self.good_copy(&id) else {
                self.left.push(Problem {
                    checkpoint: Some(self.id),
                    file: path.clone(),
                    rank: Some(index.rank),
                    chunk: Some(*chunk),
                    tensors,
                    what: what.clone(),
                });
                continue;
            };
            mended.push(Mended {
                checkpoint: self.id,
                file: path.clone(),
                rank: Some(index.rank),
                chunk: Some(*chunk),
                tensors,
                bytes: bytes.len() as u64,
                what: what.clone(),
                from,
            });
            parts.push((place.at, bytes));
        }
        let found = files::open(&path).ok().map(|(_, bytes)| bytes);
        let whole = match length {
            Some(length) => {
                if found != Some(length) && mended.is_empty() && parts.len() == chunks.len() {
                    mended.push(self.cut(&path, index.rank, length, found));
                }
                Some(length)
            }
            None => found,
        };
        if mended.is_empty() {
            return Ok(());
        }
        // Behind a chunk there are zeros up to where the next one may begin.
        let end = parts
            .iter()
            .map(|(at, bytes)| at + bytes.len() as u64)
            .max()
            .unwrap_or(0);
        let whole = whole.map_or(end, |whole| if length.is_some() { whole } else { whole.max(end) });
        for (at, bytes) in &mut parts {
            let padded = (*at + bytes.len() as u64)
                .next_multiple_of(TENSOR_ALIGN)
                .min(whole.max(end));
            bytes.resize((padded - *at) as usize, 0);
        }
        if let Some(dir) = path.parent() {
            files::ensure_dir(dir)?;
        }
        files::mend(&path, whole, &parts)?;
        self.mended.append(&mut mended);
        Ok(())
    }

    /// A file whose chunks are all good and whose length is not.
    fn cut(&self, path: &Path, rank: Rank, length: u64, found: Option<u64>) -> Mended {
        Mended {
            checkpoint: self.id,
            file: path.to_owned(),
            rank: Some(rank),
            chunk: None,
            tensors: Vec::new(),
            bytes: 0,
            what: match found {
                Some(found) => format!("is {found} bytes long where {length} are expected"),
                None => "is missing, and empty".to_owned(),
            },
            from: "its index".to_owned(),
        }
    }

    /// A copy with the right digest, and whose it is.
    fn good_copy(&self, id: &ChunkId) -> Option<(Vec<u8>, String)> {
        self.mirrors.iter().find_map(|mirror| {
            let bytes = mirror.chunk(id).ok()??;
            let right = bytes.len() == id.bytes() as usize && ChunkDigest::of(&bytes) == id.digest;
            right.then(|| (bytes, mirror.name()))
        })
    }
}

/// A store that a restore may write to: a chunk that it gave wrong is written again in passing, once a good copy has come
/// from elsewhere.
#[derive(Debug)]
pub struct Healing<'a>(pub &'a Store);

impl ChunkSource for Healing<'_> {
    fn tier(&self) -> Tier {
        self.0.tier()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        self.0.chunk(id)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, Answer<'_>)) {
        self.0.chunks(ids, answer);
    }

    /// Only within a file that is there and long enough: the rest is for [`repair`], which knows the whole file.
    fn heal(&self, id: &ChunkId, good: &[u8]) -> Result<bool, ChunkError> {
        if good.len() != id.bytes() as usize || ChunkDigest::of(good) != id.digest {
            return Ok(false);
        }
        let (file, at) = (id.place.file, id.place.at);
        let path = self.0.shard_path(&id.job, file.id(), file.rank)?;
        let length = files::open(&path)?.1;
        if length < at + good.len() as u64 {
            return Ok(false);
        }
        files::mend(&path, length, &[(at, good.to_vec())])?;
        Ok(true)
    }
}

impl Mirror for Store {
    fn committed(&self, job: &JobId) -> Result<Vec<CheckpointId>, ChunkError> {
        Ok(self.committed_ids(job)?)
    }

    fn manifest_bytes(&self, job: &JobId, id: CheckpointId) -> Result<Option<Vec<u8>>, ChunkError> {
        present(files::read(&self.manifest_path(job, id)?, MAX_MANIFEST_BYTES))
    }

    fn index_bytes(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Option<Vec<u8>>, ChunkError> {
        present(files::read(&self.index_path(job, id, rank)?, MAX_INDEX_BYTES))
    }
}

fn present(read: Result<Vec<u8>, StoreError>) -> Result<Option<Vec<u8>>, ChunkError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
