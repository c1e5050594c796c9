//! Transfer of checkpoints from the disk tier to the object tier.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{MultipartUpload, PutMode, PutOptions, PutPayload};
use rankguard_checkpoint::format::{CheckpointId, LENT_FILE};
use rankguard_checkpoint::{Checkpoint, Store, StoreError};
use rankguard_model::{JobId, Rank, with_causes};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ObjectError, ObjectLocation, ObjectTier};
use crate::shard::{ShardFile, files};

/// Maximum number of parts of one object.
const PARTS_MAX: u64 = 9_000;

/// Content of the mark file in a folder with borrowed chunks, the same as in stores on disk.
pub(super) const LENT_TEXT: &[u8] = b"shards here hold chunks of later checkpoints\n";

/// Receipt for a checkpoint that is committed in the object tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PushReceipt {
    pub job: JobId,
    pub id: CheckpointId,
    /// URL of the checkpoint folder.
    pub url: String,
    /// True if the manifest existed before and nothing was done.
    pub already: bool,
    /// Bytes sent of shards, indexes and manifest.
    pub sent_bytes: u64,
    /// Bytes of shards that existed with the right digests and were not sent.
    pub kept_bytes: u64,
    pub took: Duration,
}

/// Result of writing one object, with its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectWrite {
    Sent(u64),
    AlreadyThere(u64),
}

impl ObjectTier {
    /// Mirrors a committed checkpoint: shards first, including those it borrows chunks from, then indexes, then the
    /// manifest if it is absent. May be repeated and resumes where it stopped. Refuses a checkpoint that is damaged on
    /// disk, a generation that is fenced in the object store, and to overwrite any object. Reads small files on the
    /// calling thread.
    pub async fn push(&self, store: &Store, job: &JobId, id: CheckpointId) -> Result<PushReceipt, ObjectError> {
        let started = Instant::now();
        let checkpoint = store.load(job, id)?;
        let manifest_bytes = read_file(&store.manifest_path(job, id)?)?;
        let manifest_place = self.manifest_place(job, id)?;
        let mut pushed = PushReceipt {
            job: job.clone(),
            id,
            url: format!("{}/{job}/{id}", self.url),
            already: false,
            sent_bytes: 0,
            kept_bytes: 0,
            took: Duration::ZERO,
        };
        if self.size(&manifest_place).await?.is_some() {
            self.same(&manifest_place, &manifest_bytes).await?;
            (pushed.already, pushed.took) = (true, started.elapsed());
            return Ok(pushed);
        }
        self.refuse_stale(job, id).await?;
        self.push_records(store, job).await?;

        let mut puts = self.put_shards(store, &checkpoint, &|_| true).await?;
        // Another generation may have committed meanwhile.
        self.refuse_stale(job, id).await?;
        puts.push(self.put_new(&manifest_place, manifest_bytes).await?);
        for put in puts {
            match put {
                ObjectWrite::Sent(bytes) => pushed.sent_bytes += bytes,
                ObjectWrite::AlreadyThere(bytes) => pushed.kept_bytes += bytes,
            }
        }
        pushed.took = started.elapsed();
        Ok(pushed)
    }

    /// Writes the shards of the selected ranks, those they borrow chunks from, and then their indexes. Existing objects
    /// are not sent again.
    pub(super) async fn put_shards(
        &self,
        store: &Store,
        checkpoint: &Checkpoint,
        own: &(dyn Fn(Rank) -> bool + Sync),
    ) -> Result<Vec<ObjectWrite>, ObjectError> {
        let job = &checkpoint.manifest.job;
        let id = checkpoint.id();
        if let Err(problem) = self.end_unfinished_uploads(store, job).await {
            tracing::warn!(%job, problem = with_causes(&problem), "unfinished uploads were not looked for");
        }
        let mut puts = Vec::new();
        let mut shards = files(&checkpoint.indexes);
        shards.retain(|shard| own(shard.file.rank));
        let (small, large): (Vec<_>, Vec<_>) = shards
            .iter()
            .partition(|shard| shard.whole && shard.bytes <= self.limits.part_bytes);
        for shard in shards.iter().filter(|shard| shard.file.id() != id) {
            if self.size(&self.manifest_place(job, shard.file.id())?).await?.is_none() {
                self.mark_lent(job, shard.file.id()).await?;
            }
        }
        // Each large shard has many concurrent requests; small ones are sent concurrently.
        for shard in large {
            puts.push(self.put_shard(store, job, shard).await?);
        }
        let side_by_side = stream::iter(small).map(|shard| self.put_shard(store, job, shard));
        let small: Vec<ObjectWrite> = side_by_side.buffer_unordered(self.requests()).try_collect().await?;
        puts.extend(small);

        let indexes = checkpoint.indexes.iter().filter(|index| own(index.rank));
        let indexes = stream::iter(indexes).map(|index| async move {
            let bytes = read_file(&store.index_path(job, id, index.rank)?)?;
            self.put_new(&self.index_place(job, id, index.rank)?, bytes).await
        });
        let indexes: Vec<ObjectWrite> = indexes.buffer_unordered(self.requests()).try_collect().await?;
        puts.extend(indexes);
        Ok(puts)
    }

    /// Marks a folder without a manifest as holding chunks of other checkpoints.
    pub(super) async fn mark_lent(&self, job: &JobId, id: CheckpointId) -> Result<(), ObjectError> {
        let place = self.place(job, id, LENT_FILE)?;
        if self.size(&place).await?.is_none() {
            self.put_new(&place, LENT_TEXT.to_vec()).await?;
        }
        Ok(())
    }

    pub(super) fn requests(&self) -> usize {
        self.limits.requests.max(1)
    }

    async fn put_shard(&self, store: &Store, job: &JobId, shard: &ShardFile) -> Result<ObjectWrite, ObjectError> {
        let place = self.shard_place(job, shard.file)?;
        let path = store.shard_path(job, shard.file.id(), shard.file.rank)?;
        let size = std::fs::metadata(&path).map_err(io("look at", &path))?.len();
        if shard.whole && size != shard.bytes || size < shard.bytes {
            let stated = shard.bytes;
            return Err(StoreError::Size {
                path,
                stated,
                found: size,
            }
            .into());
        }
        if let Some(found) = self.size(&place).await? {
            if found != size {
                return Err(ObjectError::Conflict { url: place.url });
            }
            // The index is put after the shard and covers all its chunks: the shard is complete and is not overwritten.
            let vouched = self
                .size(&self.index_place(job, shard.file.id(), shard.file.rank)?)
                .await?
                .is_some();
            if !vouched {
                self.compare(&place, shard, size).await?;
            }
            return Ok(ObjectWrite::AlreadyThere(size));
        }
        if size <= self.limits.part_bytes {
            let bytes = read_shard(&path, shard, size)?;
            return self.put_new(&place, bytes).await;
        }
        self.put_parts(store, job, &place, path, shard.clone(), size).await?;
        Ok(ObjectWrite::Sent(size))
    }

    /// Reads an object back; a difference is a conflict.
    async fn compare(&self, place: &ObjectLocation, shard: &ShardFile, size: u64) -> Result<(), ObjectError> {
        let pieces = shard.pieces(size, self.limits.part_bytes);
        let looks = stream::iter(pieces).map(|piece| async move {
            let bytes = self.read_range(place, piece.range.clone()).await?;
            let url = place.url.clone();
            piece.check(&bytes).map_err(|_| ObjectError::Conflict { url })
        });
        looks.buffer_unordered(self.requests()).try_collect().await
    }

    /// Writes a small object if it is absent; an existing object must have the same content.
    pub(super) async fn put_new(&self, place: &ObjectLocation, bytes: Vec<u8>) -> Result<ObjectWrite, ObjectError> {
        let length = bytes.len() as u64;
        self.cap.take(length).await;
        let payload = PutPayload::from(Bytes::from(bytes.clone()));
        let put = self
            .store
            .put_opts(&place.path, payload, PutOptions::from(PutMode::Create));
        match self.send_request("write", &place.url, put).await {
            Ok(_) => Ok(ObjectWrite::Sent(length)),
            Err(ObjectError::Request {
                source: object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. },
                ..
            }) => {
                self.same(place, &bytes).await?;
                Ok(ObjectWrite::AlreadyThere(length))
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses an object with content other than `bytes`.
    async fn same(&self, place: &ObjectLocation, bytes: &[u8]) -> Result<(), ObjectError> {
        let conflict = || ObjectError::Conflict { url: place.url.clone() };
        match self.read_small(place, bytes.len()).await {
            Ok(found) if found == bytes => Ok(()),
            Ok(_) | Err(ObjectError::Size { .. }) => Err(conflict()),
            Err(error) => Err(error),
        }
    }

    /// Sends a file in parts, each checked before it is sent. On a failure the upload is aborted, because parts of an
    /// unfinished object cost money.
    async fn put_parts(
        &self,
        store: &Store,
        job: &JobId,
        place: &ObjectLocation,
        path: PathBuf,
        shard: ShardFile,
        size: u64,
    ) -> Result<(), ObjectError> {
        let mut upload = self.begin_upload(store, job, place).await?;
        let sent = match self.send_parts(place, upload.as_mut(), path, shard, size).await {
            Ok(()) => self
                .send_request("end writing", &place.url, upload.complete())
                .await
                .map(drop),
            failed => failed,
        };
        // A completion may have succeeded although its reply was lost; then the object exists and there is nothing to
        // abort.
        if let Err(error) = sent {
            if let Err(problem) = self.send_request("give up writing", &place.url, upload.abort()).await {
                tracing::warn!(%problem, "parts may lie in the object store; the next push of this job, or `checkpoint gc`, aborts the upload");
            }
            return Err(error);
        }
        Ok(())
    }

    async fn send_parts(
        &self,
        place: &ObjectLocation,
        upload: &mut dyn MultipartUpload,
        path: PathBuf,
        shard: ShardFile,
        size: u64,
    ) -> Result<(), ObjectError> {
        let part_bytes = self.limits.part_bytes.max(size.div_ceil(PARTS_MAX));
        let (give, mut parts) = mpsc::channel(1);
        let reader = tokio::task::spawn_blocking(move || read_parts(&path, &shard, size, part_bytes, &give));
        // Separate tasks, so that they progress while this one waits for the disk or the cap.
        let mut under_way: JoinSet<Result<(), ObjectError>> = JoinSet::new();
        let died = |problem: tokio::task::JoinError| ObjectError::Url {
            url: place.url.clone(),
            problem: format!("a task of the upload has died: {problem}"),
        };
        while let Some(part) = parts.recv().await {
            let part: Bytes = part?;
            self.cap.take(part.len() as u64).await;
            if under_way.len() >= self.requests()
                && let Some(sent) = under_way.join_next().await
            {
                sent.map_err(died)??;
            }
            let request = upload.put_part(PutPayload::from(part));
            let tier = self.clone();
            let url = place.url.clone();
            under_way.spawn(async move { tier.send_request("write a part of", &url, request).await });
        }
        while let Some(sent) = under_way.join_next().await {
            sent.map_err(died)??;
        }
        // The channel is closed, so the reader has ended.
        reader.await.map_err(died)
    }
}

/// Reads a shard piece by piece, checks it and passes it on in parts of equal size. Ends early if the receiver is
/// dropped.
fn read_parts(
    path: &FilePath,
    shard: &ShardFile,
    size: u64,
    part_bytes: u64,
    give: &mpsc::Sender<Result<Bytes, ObjectError>>,
) {
    let mut pending = BytesMut::new();
    let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
    let mut read = || -> Result<(), ObjectError> {
        let file = File::open(path).map_err(io("open", path))?;
        for piece in shard.pieces(size, part_bytes as u64) {
            let from = pending.len();
            pending.resize(from + (piece.range.end - piece.range.start) as usize, 0);
            let bytes = &mut pending[from..];
            file.read_exact_at(bytes, piece.range.start).map_err(io("read", path))?;
            piece.check(bytes).map_err(|wrong| local_damage(path, &wrong))?;
            while pending.len() >= part_bytes {
                if give.blocking_send(Ok(pending.split_to(part_bytes).freeze())).is_err() {
                    return Ok(());
                }
            }
        }
        if !pending.is_empty() {
            let _ = give.blocking_send(Ok(pending.split().freeze()));
        }
        Ok(())
    };
    if let Err(problem) = read() {
        let _ = give.blocking_send(Err(problem));
    }
}

/// Reads and checks a whole small shard.
fn read_shard(path: &FilePath, shard: &ShardFile, size: u64) -> Result<Vec<u8>, ObjectError> {
    let bytes = read_file(path)?;
    if bytes.len() as u64 != size {
        let path = path.to_owned();
        let found = bytes.len() as u64;
        return Err(StoreError::Size {
            path,
            stated: size,
            found,
        }
        .into());
    }
    for piece in shard.pieces(size, u64::MAX) {
        piece.check(&bytes).map_err(|wrong| local_damage(path, &wrong))?;
    }
    Ok(bytes)
}

pub(super) fn read_file(path: &FilePath) -> Result<Vec<u8>, ObjectError> {
    std::fs::read(path).map_err(io("read", path))
}

pub(super) fn io(what: &'static str, path: &FilePath) -> impl FnOnce(std::io::Error) -> ObjectError {
    move |source| ObjectError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

fn local_damage(path: &FilePath, wrong: &crate::shard::ChunkMismatch) -> ObjectError {
    ObjectError::LocalDamage {
        path: path.to_owned(),
        at: wrong.at,
        stated: wrong.stated,
        found: wrong.found,
    }
}
