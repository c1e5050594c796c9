//! From the object tier to the disk tier.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, LENT_FILE, MANIFEST_FILE};
use rankguard_model::JobId;
use serde::Serialize;
use tokio::time::Instant;

use super::push::{LENT_TEXT, io, read_file};
use super::{ObjectError, ObjectTier};
use crate::shard::{ShardFile, files};

/// A checkpoint is in the disk tier: its manifest is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// The job.
    pub job: JobId,
    /// The checkpoint.
    pub id: CheckpointId,
    /// Where it came from.
    pub url: String,
    /// The manifest was there before; nothing was done.
    pub already: bool,
    /// Bytes of shards, indexes and manifest that were read.
    pub read_bytes: u64,
    /// Bytes of shards that were there with the right digests and were not read.
    pub kept_bytes: u64,
    /// How long it took.
    pub took: Duration,
}

impl ObjectTier {
    /// Brings a committed checkpoint into a store on disk, byte for byte as it was pushed, and commits it there. May be
    /// repeated; files that are there with the right digests are kept. Every chunk is checked on the way. Writes and
    /// syncs on the calling thread, so give it a runtime where nothing else is in a hurry.
    pub async fn pull(&self, job: &JobId, id: CheckpointId, store: &Store) -> Result<Pulled, ObjectError> {
        let started = Instant::now();
        let manifest = self.manifest(job, id).await?;
        let mut pulled = Pulled {
            job: job.clone(),
            id,
            url: format!("{}/{job}/{id}", self.url),
            already: false,
            read_bytes: 0,
            kept_bytes: 0,
            took: Duration::ZERO,
        };
        if store.committed_ids(job)?.contains(&id) {
            let path = store.manifest_path(job, id)?;
            if read_file(&path)? != manifest.to_bytes() {
                return Err(ObjectError::LocalConflict { path });
            }
            (pulled.already, pulled.took) = (true, started.elapsed());
            return Ok(pulled);
        }
        let ranks: Vec<_> = manifest.shards.iter().map(|shard| shard.rank).collect();
        let reads = stream::iter(ranks).map(|rank| self.index(&manifest, rank));
        let indexes: Vec<_> = reads.buffered(self.requests()).try_collect().await?;
        let (indexes, texts): (Vec<_>, Vec<_>) = indexes.into_iter().unzip();
        for shard in files(&indexes) {
            let path = store.shard_path(job, shard.file.id(), shard.file.rank)?;
            make_folder(&path)?;
            let folder = store.dir(job, shard.file.id())?;
            let lends = shard.file.id() != id && !folder.join(MANIFEST_FILE).exists();
            if lends && !folder.join(LENT_FILE).exists() {
                let mark = Temp::start(&folder.join(LENT_FILE))?;
                mark.file.write_all_at(LENT_TEXT, 0).map_err(io("write", &folder))?;
                mark.put()?;
            }
            let (bytes, read) = self.fetch_shard(job, &shard, &path).await?;
            *(if read {
                &mut pulled.read_bytes
            } else {
                &mut pulled.kept_bytes
            }) += bytes;
        }
        for (index, text) in indexes.iter().zip(texts) {
            let path = store.index_path(job, id, index.rank)?;
            pulled.read_bytes += text.len() as u64;
            if path.exists() {
                if read_file(&path)? != text {
                    return Err(ObjectError::LocalConflict { path });
                }
                continue;
            }
            let temp = Temp::start(&path)?;
            temp.file.write_all_at(&text, 0).map_err(io("write", &path))?;
            temp.put()?;
        }
        pulled.read_bytes += manifest.to_bytes().len() as u64;
        store.commit(&manifest)?;
        pulled.took = started.elapsed();
        Ok(pulled)
    }

    /// One shard file; says how long it is and whether it had to be read.
    async fn fetch_shard(&self, job: &JobId, shard: &ShardFile, path: &FilePath) -> Result<(u64, bool), ObjectError> {
        let place = self.shard_place(job, shard.file)?;
        let size = self.size(&place).await?;
        let size = size.ok_or_else(|| ObjectError::Missing { url: place.url.clone() })?;
        if shard.whole && size != shard.bytes || size < shard.bytes {
            return Err(ObjectError::Size {
                url: place.url,
                stated: shard.bytes,
                found: size,
            });
        }
        if path.exists() {
            let same = is_shard(path, shard, size)?;
            let path = path.to_owned();
            return if same {
                Ok((size, false))
            } else {
                Err(ObjectError::LocalConflict { path })
            };
        }
        let temp = Temp::start(path)?;
        temp.file.set_len(size).map_err(io("make room for", path))?;
        let pieces = shard.pieces(size, self.limits.part_bytes);
        let (place, file) = (&place, &temp.file);
        let reads = stream::iter(pieces).map(|piece| async move {
            let bytes = self.read_range(place, piece.range.clone()).await?;
            piece.check(&bytes).map_err(|wrong| ObjectError::Damaged {
                url: place.url.clone(),
                at: wrong.at,
                stated: wrong.stated,
                found: wrong.found,
            })?;
            // A page of a file that is written back later: no wait worth another thread.
            file.write_all_at(&bytes, piece.range.start).map_err(io("write", path))
        });
        let (): () = reads.buffer_unordered(self.requests()).try_collect().await?;
        temp.put()?;
        Ok((size, true))
    }
}

/// Whether the file at `path` is what the indexes say, and as long as the object.
fn is_shard(path: &FilePath, shard: &ShardFile, size: u64) -> Result<bool, ObjectError> {
    let file = File::open(path).map_err(io("open", path))?;
    if file.metadata().map_err(io("look at", path))?.len() != size {
        return Ok(false);
    }
    let mut buffer = Vec::new();
    for piece in shard.pieces(size, 4 << 20) {
        buffer.resize((piece.range.end - piece.range.start) as usize, 0);
        file.read_exact_at(&mut buffer, piece.range.start)
            .map_err(io("read", path))?;
        if piece.check(&buffer).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the folders of a file and lets their names last.
fn make_folder(path: &FilePath) -> Result<(), ObjectError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(io("make", folder))?;
    folder.ancestors().take(3).try_for_each(sync_folder)
}

fn sync_folder(folder: &FilePath) -> Result<(), ObjectError> {
    let folder = if folder.as_os_str().is_empty() {
        FilePath::new(".")
    } else {
        folder
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(io("sync", folder))
}

/// A file under a temporary name, which stores clear away where one is left.
struct Temp {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Temp {
    fn start(target: &FilePath) -> Result<Self, ObjectError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".tmp-{name}-{}-pull", std::process::id()));
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path);
        Ok(Self {
            file: file.map_err(io("make", &path))?,
            path,
            target: target.to_owned(),
        })
    }

    /// Syncs it and gives it its name, unless somebody else has it by now.
    fn put(self) -> Result<(), ObjectError> {
        self.file.sync_all().map_err(io("sync", &self.target))?;
        match std::fs::hard_link(&self.path, &self.target) {
            Err(problem) if problem.kind() == std::io::ErrorKind::AlreadyExists => {
                let path = self.target.clone();
                Err(ObjectError::LocalConflict { path })
            }
            linked => linked.map_err(io("name", &self.target)),
        }?;
        self.target.parent().map_or(Ok(()), sync_folder)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        // After a link this is a second name; otherwise it is of no use to anyone.
        let _ = std::fs::remove_file(&self.path);
    }
}
