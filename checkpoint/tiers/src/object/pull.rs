//! Transfer of checkpoints from the object tier to the disk tier.
//!
//! One process fills a checkpoint folder at a time; the others wait for it and then find the checkpoint there
//! ([`FillLease`]). A process that observes no progress of the lease holder fills the folder as well: every file has a
//! random temporary name, a final name is assigned only if it is free, and an existing file is compared with the
//! digests.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use rankguard_checkpoint::format::{CheckpointId, LENT_FILE, MANIFEST_FILE, Manifest, ShardIndex};
use rankguard_checkpoint::store::ensure_folder_of;
use rankguard_checkpoint::{FillLease, IncomingFile, PublishResult, Store};
use rankguard_model::JobId;
use serde::Serialize;
use tokio::time::Instant;

use super::push::{LENT_TEXT, io, read_file};
use super::{ObjectError, ObjectLocation, ObjectTier};
use crate::shard::{ShardFile, ShardPiece, files};

/// First and longest pause between two polls of a folder that another process fills.
const LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Time without progress after which a lease holder is no longer waited for.
const SILENT: Duration = Duration::from_secs(30);

/// Receipt for a checkpoint that is committed in the disk tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PullReceipt {
    pub job: JobId,
    pub id: CheckpointId,
    /// URL of its source.
    pub url: String,
    /// True if the manifest existed before and nothing was done.
    pub already: bool,
    /// Bytes read of shards, indexes and manifest.
    pub read_bytes: u64,
    /// Bytes of shards that existed with the right digests and were not read.
    pub kept_bytes: u64,
    pub took: Duration,
}

impl ObjectTier {
    /// Copies a committed checkpoint to a store on disk, byte for byte, and commits it there. May be repeated, and may
    /// run in several processes and on several nodes at once; existing files with the right digests are retained. Every
    /// chunk is checked. Writes and syncs block the calling thread, so use a runtime without latency-sensitive tasks.
    pub async fn pull(&self, job: &JobId, id: CheckpointId, store: &Store) -> Result<PullReceipt, ObjectError> {
        let started = Instant::now();
        let manifest = self.manifest(job, id).await?;
        let mut pulled = PullReceipt {
            job: job.clone(),
            id,
            url: format!("{}/{job}/{id}", self.url),
            already: is_committed(store, &manifest)?,
            read_bytes: 0,
            kept_bytes: 0,
            took: Duration::ZERO,
        };
        self.pull_records(job, store).await?;
        if !pulled.already {
            let lease = wait_for_lease(store, job, id).await?;
            pulled.already = is_committed(store, &manifest)?;
            if !pulled.already {
                // Removes the remains of a pull that was killed.
                store.clear_abandoned(job, id)?;
                self.fill(store, &manifest, lease.as_ref(), &mut pulled).await?;
            }
        }
        pulled.took = started.elapsed();
        Ok(pulled)
    }

    async fn fill(
        &self,
        store: &Store,
        manifest: &Manifest,
        lease: Option<&FillLease>,
        pulled: &mut PullReceipt,
    ) -> Result<(), ObjectError> {
        let job = &manifest.job;
        let id = manifest.id();
        let ranks: Vec<_> = manifest.shards.iter().map(|shard| shard.rank).collect();
        let reads = stream::iter(ranks).map(|rank| self.index(manifest, rank));
        let indexes: Vec<_> = reads.buffered(self.requests()).try_collect().await?;
        let (indexes, texts): (Vec<ShardIndex>, Vec<Vec<u8>>) = indexes.into_iter().unzip();
        for shard in files(&indexes) {
            let path = store.shard_path(job, shard.file.id(), shard.file.rank)?;
            ensure_folder_of(&path)?;
            let folder = store.dir(job, shard.file.id())?;
            if shard.file.id() != id && !folder.join(MANIFEST_FILE).exists() {
                put_small(&folder.join(LENT_FILE), LENT_TEXT)?;
            }
            let (bytes, read) = self.fetch_shard(job, &shard, &path, lease).await?;
            if read {
                pulled.read_bytes += bytes;
            } else {
                pulled.kept_bytes += bytes;
            }
        }
        for (index, text) in indexes.iter().zip(texts) {
            pulled.read_bytes += text.len() as u64;
            put_small(&store.index_path(job, id, index.rank)?, &text)?;
        }
        pulled.read_bytes += manifest.to_bytes().len() as u64;
        store.commit(manifest)?;
        Ok(())
    }

    /// Copies one shard file; returns its length and true if it had to be read.
    async fn fetch_shard(
        &self,
        job: &JobId,
        shard: &ShardFile,
        path: &FilePath,
        lease: Option<&FillLease>,
    ) -> Result<(u64, bool), ObjectError> {
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
            return same_shard(path, shard, size).map(|()| (size, false));
        }
        let incoming = IncomingFile::start(path, size)?;
        let pieces = shard.pieces(size, self.limits.part_bytes);
        let place = &place;
        let file = &incoming;
        let reads = stream::iter(pieces).map(|piece| async move {
            let bytes = self.read_checked(place, &piece).await?;
            // Writes to the page cache: too short a wait for another thread.
            file.write_at(&bytes, piece.range.start)?;
            if let Some(lease) = lease {
                lease.beat();
            }
            Ok::<_, ObjectError>(())
        });
        let (): () = reads.buffer_unordered(self.requests()).try_collect().await?;
        match incoming.publish()? {
            PublishResult::New => Ok((size, true)),
            // Another process has published it first.
            PublishResult::AlreadyThere => same_shard(path, shard, size).map(|()| (size, true)),
        }
    }

    /// Reads a piece and compares it with the digests in the indexes. A difference counts only if a second read
    /// confirms it.
    async fn read_checked(&self, place: &ObjectLocation, piece: &ShardPiece<'_>) -> Result<bytes::Bytes, ObjectError> {
        let bytes = self.read_range(place, piece.range.clone()).await?;
        if piece.check(&bytes).is_ok() {
            return Ok(bytes);
        }
        let bytes = self.read_range(place, piece.range.clone()).await?;
        piece.check(&bytes).map_err(|wrong| ObjectError::Damaged {
            url: place.url.clone(),
            at: wrong.at,
            stated: wrong.stated,
            found: wrong.found,
        })?;
        tracing::warn!(
            url = place.url,
            "a range had a wrong digest and a right one when it was read again"
        );
        Ok(bytes)
    }
}

/// Returns true if this very checkpoint is committed in the store.
fn is_committed(store: &Store, manifest: &Manifest) -> Result<bool, ObjectError> {
    let job = &manifest.job;
    let id = manifest.id();
    if !store.committed_ids(job)?.contains(&id) {
        return Ok(false);
    }
    let path = store.manifest_path(job, id)?;
    if read_file(&path)? != manifest.to_bytes() {
        return Err(ObjectError::LocalConflict { path });
    }
    Ok(true)
}

/// Waits until no other process fills the folder; returns no lease if the holder makes no progress.
async fn wait_for_lease(store: &Store, job: &JobId, id: CheckpointId) -> Result<Option<FillLease>, ObjectError> {
    let mut pause = LOOK.0;
    let mut beat = None;
    let mut since = Instant::now();
    loop {
        if let Some(lease) = store.fill_lease(job, id)? {
            return Ok(Some(lease));
        }
        let now = store.fill_beat(job, id)?;
        if now != beat {
            (beat, since) = (now, Instant::now());
        }
        if since.elapsed() >= SILENT {
            tracing::warn!(%job, checkpoint = %id, "another process fills this checkpoint and makes no progress; it is not waited for");
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
        pause = LOOK.1.min(2 * pause);
    }
}

/// Writes a small file if it is absent; an existing file must have the same content.
pub(super) fn put_small(path: &FilePath, content: &[u8]) -> Result<(), ObjectError> {
    if !path.exists() {
        let incoming = IncomingFile::start(path, content.len() as u64)?;
        incoming.write_at(content, 0)?;
        incoming.publish()?;
    }
    if read_file(path)? != content {
        let path = path.to_owned();
        return Err(ObjectError::LocalConflict { path });
    }
    Ok(())
}

/// Refuses a file that differs from the indexes or from the length of the object.
fn same_shard(path: &FilePath, shard: &ShardFile, size: u64) -> Result<(), ObjectError> {
    if is_shard(path, shard, size)? {
        return Ok(());
    }
    let path = path.to_owned();
    Err(ObjectError::LocalConflict { path })
}

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
