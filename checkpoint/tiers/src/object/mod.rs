//! The object tier: committed checkpoints in any object store, laid out as [`rankguard_checkpoint::store`] lays them
//! out, so a `file://` mirror is itself a store.
//!
//! ```text
//! <url>/<job>/<step:012>-g<generation>/rank-00000.shard, rank-00000.index, MANIFEST
//! ```
//!
//! Invariants:
//! - a checkpoint is there if, and only if, its manifest is; the manifest is put last, only if absent, after everything
//!   that it names is whole (RG-1), and removed first;
//! - an index is put after its shard, so an index that is there vouches for the shard beside it; a shard without one is
//!   read back and compared before it is believed. What is there is not sent again;
//! - no byte is sent or kept that does not have the digest its index states (RG-2);
//! - a generation is refused when a higher one has committed there (RG-3);
//! - every request has a deadline, requests under way and memory are bounded, all bytes go through the [`Cap`] (RG-9).
//!
//! Completion is a value: [`Pushed`], [`Pulled`], [`Removed`].
//!
//! Absent: encryption by us (object stores have their own), compression, and a lease against two removers at once.

mod connect;
mod error;
mod list;
mod pull;
mod push;
mod records;
mod remove;
mod share;
mod source;
mod trouble;
mod upload;
mod url;
mod verify;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rankguard_checkpoint::format::{CheckpointId, MANIFEST_FILE, Origin, check_job, index_file, shard_file};
use rankguard_model::{JobId, Rank};

use self::upload::Multipart;
use crate::cap::Cap;

pub use error::ObjectError;
pub use list::Listed;
pub use pull::Pulled;
pub use push::Pushed;
pub use remove::Removed;
pub use share::Share;
pub use source::ObjectSource;
pub use upload::{UnfinishedUpload, unfinished_uploads};

/// How much the tier may have under way.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest wait for one request, its own retries included; the wait for the bandwidth cap is not part of it.
    pub deadline: Duration,
    /// Requests under way at once.
    pub requests: usize,
    /// Bytes of one part or range. Stores want 5 MiB or more of a part, and at most 10,000 of them.
    pub part_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            requests: 8,
            part_bytes: 16 << 20,
        }
    }
}

/// Checkpoints in an object store.
#[derive(Debug, Clone)]
pub struct ObjectTier {
    store: Arc<dyn ObjectStore>,
    base: Path,
    url: String,
    limits: Limits,
    cap: Arc<Cap>,
    /// Where uploads have ids.
    multipart: Option<Multipart>,
    /// The folder of a `file://` store.
    folder: Option<PathBuf>,
}

impl ObjectTier {
    /// The store behind a `file`, `s3`, `gs` or `az` URL. Asks nothing of it yet.
    pub fn open(url: &str) -> Result<Self, ObjectError> {
        let opened = url::open(url)?;
        let tier = Self::over(opened.store, opened.base, url);
        Ok(Self {
            multipart: opened.multipart,
            folder: opened.folder,
            ..tier
        })
    }

    /// Whether a URL may name a place for checkpoints, for whoever only passes it on: what it takes to open it is known to those
    /// who do.
    pub fn check(url: &str) -> Result<(), ObjectError> {
        url::parse(url).map(drop)
    }

    /// A store that somebody else has made, with `url` as its name in messages.
    pub fn over(store: Arc<dyn ObjectStore>, base: Path, url: &str) -> Self {
        Self {
            store,
            base,
            url: url.trim_end_matches('/').to_owned(),
            limits: Limits::default(),
            cap: Arc::new(Cap::none()),
            multipart: None,
            folder: None,
        }
    }

    /// The same with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same with all bytes that are sent through `cap`. What is read waits for no cap: a job stands until it is there.
    pub fn with_cap(self, cap: Arc<Cap>) -> Self {
        Self { cap, ..self }
    }

    /// Its name in messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn place(&self, job: &JobId, id: CheckpointId, file: &str) -> Result<Place, ObjectError> {
        check_job(job)?;
        let path = self.base.clone().join(job.as_str()).join(id.to_string()).join(file);
        let url = format!("{}/{job}/{id}/{file}", self.url);
        Ok(Place { path, url })
    }

    fn manifest_place(&self, job: &JobId, id: CheckpointId) -> Result<Place, ObjectError> {
        self.place(job, id, MANIFEST_FILE)
    }

    fn index_place(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<Place, ObjectError> {
        self.place(job, id, &index_file(rank))
    }

    fn shard_place(&self, job: &JobId, file: Origin) -> Result<Place, ObjectError> {
        self.place(job, file.id(), &shard_file(file.rank))
    }

    /// A request with its deadline.
    async fn ask<T>(
        &self,
        what: &'static str,
        url: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, ObjectError> {
        let limit = self.limits.deadline;
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(object_store::Error::NotFound { .. })) => Err(ObjectError::Missing { url: url.to_owned() }),
            Ok(Err(source)) => {
                let url = url.to_owned();
                Err(ObjectError::Request { what, url, source })
            }
            Err(_) => {
                let url = url.to_owned();
                Err(ObjectError::Deadline { what, url, limit })
            }
        }
    }

    /// Length of an object; `None` when it is not there.
    async fn size(&self, place: &Place) -> Result<Option<u64>, ObjectError> {
        match self.ask("look at", &place.url, self.store.head(&place.path)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(ObjectError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A small object whole; refuses one longer than `max` before it is read.
    async fn read_small(&self, place: &Place, max: usize) -> Result<Vec<u8>, ObjectError> {
        let found = self.ask("read", &place.url, self.store.get(&place.path)).await?;
        if found.meta.size > max as u64 {
            return Err(ObjectError::Size {
                url: place.url.clone(),
                stated: max as u64,
                found: found.meta.size,
            });
        }
        Ok(self.ask("read", &place.url, found.bytes()).await?.to_vec())
    }

    /// A range of an object.
    async fn read_range(&self, place: &Place, range: std::ops::Range<u64>) -> Result<bytes::Bytes, ObjectError> {
        let wanted = range.end - range.start;
        let request = self.store.get_range(&place.path, range);
        let bytes = self.ask("read", &place.url, request).await?;
        if bytes.len() as u64 != wanted {
            return Err(ObjectError::Size {
                url: place.url.clone(),
                stated: wanted,
                found: bytes.len() as u64,
            });
        }
        Ok(bytes)
    }
}

/// An object: where the client finds it and what people call it.
#[derive(Debug, Clone)]
struct Place {
    path: Path,
    url: String,
}
