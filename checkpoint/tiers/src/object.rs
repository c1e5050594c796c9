//! Object tier: committed checkpoints in any object store, in the layout of [`rankguard_checkpoint::store`], so a
//! `file://` mirror is itself a store.
//!
//! ```text
//! <url>/<job>/<step:012>-g<generation>/rank-00000.shard, rank-00000.index, MANIFEST
//! ```
//!
//! Invariants:
//! - a checkpoint exists if, and only if, its manifest does; the manifest is put last, only if absent, after everything
//!   that it names is complete (RG-1), and removed first;
//! - an index is put after its shard, so an existing index proves that its shard is complete; a shard without one is
//!   read back and compared before it is trusted. Existing objects are not sent again;
//! - no byte is sent or stored that does not have the digest in its index (RG-2);
//! - a generation is refused when a higher one has committed there (RG-3);
//! - every request has a deadline, concurrent requests and memory are bounded, all sent bytes go through the [`BandwidthCap`]
//!   (RG-9).
//!
//! Completion is returned as a value: [`PushReceipt`], [`PullReceipt`], [`RemovalReport`].
//!
//! Absent: client-side encryption (object stores have their own), compression, and a lease against two concurrent
//! removers.

mod connect;
mod error;
mod list;
mod pull;
mod push;
mod records;
mod remove;
mod request_failure;
mod share;
mod source;
mod upload;
mod url;
mod verify;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rankguard_checkpoint::format::{CheckpointId, ChunkOrigin, MANIFEST_FILE, check_job, index_file, shard_file};
use rankguard_model::{JobId, Rank};

use self::upload::MultipartHandle;
use crate::cap::BandwidthCap;

pub use error::ObjectError;
pub use list::{ListedCheckpoint, ObjectListing};
pub use pull::PullReceipt;
pub use push::PushReceipt;
pub use remove::RemovalReport;
pub use share::PushShare;
pub use source::ObjectSource;
pub use upload::{UnfinishedUpload, unfinished_uploads};

/// Limits on concurrent work of the tier.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLimits {
    /// Deadline of one request, retries included, default 60 s; the wait for the bandwidth cap is not counted.
    pub deadline: Duration,
    /// Maximum number of concurrent requests, default 8.
    pub requests: usize,
    /// Size of one part or range in bytes, default 16 MiB. Stores require at least 5 MiB a part and at most 10,000
    /// parts.
    pub part_bytes: u64,
}

impl Default for ObjectLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            requests: 8,
            part_bytes: 16 << 20,
        }
    }
}

/// Store of checkpoints in an object store.
#[derive(Debug, Clone)]
pub struct ObjectTier {
    store: Arc<dyn ObjectStore>,
    base: Path,
    url: String,
    limits: ObjectLimits,
    cap: Arc<BandwidthCap>,
    /// Multipart interface, if uploads have ids.
    multipart: Option<MultipartHandle>,
    /// Folder of a `file://` store.
    folder: Option<PathBuf>,
}

impl ObjectTier {
    /// Opens the store at a `file`, `s3`, `gs` or `az` URL without sending a request.
    pub fn open(url: &str) -> Result<Self, ObjectError> {
        let opened = url::open(url)?;
        let tier = Self::over(opened.store, opened.base, url);
        Ok(Self {
            multipart: opened.multipart,
            folder: opened.folder,
            ..tier
        })
    }

    /// Checks the form of a URL without opening it, for callers that only pass it on and may lack the credentials.
    pub fn check(url: &str) -> Result<(), ObjectError> {
        url::parse(url).map(drop)
    }

    /// Wraps an existing store; `url` names it in messages.
    pub fn over(store: Arc<dyn ObjectStore>, base: Path, url: &str) -> Self {
        Self {
            store,
            base,
            url: url.trim_end_matches('/').to_owned(),
            limits: ObjectLimits::default(),
            cap: Arc::new(BandwidthCap::none()),
            multipart: None,
            folder: None,
        }
    }

    /// Returns the tier with other limits.
    pub fn with_limits(self, limits: ObjectLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the tier with all sent bytes limited by `cap`. Reads are not limited, because the job waits for them.
    pub fn with_cap(self, cap: Arc<BandwidthCap>) -> Self {
        Self { cap, ..self }
    }

    /// Returns the URL that names the store in messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn place(&self, job: &JobId, id: CheckpointId, file: &str) -> Result<ObjectLocation, ObjectError> {
        check_job(job)?;
        let path = self.base.clone().join(job.as_str()).join(id.to_string()).join(file);
        let url = format!("{}/{job}/{id}/{file}", self.url);
        Ok(ObjectLocation { path, url })
    }

    fn manifest_place(&self, job: &JobId, id: CheckpointId) -> Result<ObjectLocation, ObjectError> {
        self.place(job, id, MANIFEST_FILE)
    }

    fn index_place(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<ObjectLocation, ObjectError> {
        self.place(job, id, &index_file(rank))
    }

    fn shard_place(&self, job: &JobId, file: ChunkOrigin) -> Result<ObjectLocation, ObjectError> {
        self.place(job, file.id(), &shard_file(file.rank))
    }

    /// Sends a request with its deadline.
    async fn send_request<T>(
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

    /// Returns the length of an object in bytes; `None` if it does not exist.
    async fn size(&self, place: &ObjectLocation) -> Result<Option<u64>, ObjectError> {
        match self
            .send_request("look at", &place.url, self.store.head(&place.path))
            .await
        {
            Ok(meta) => Ok(Some(meta.size)),
            Err(ObjectError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a small object; refuses one longer than `max` bytes before it is read.
    async fn read_small(&self, place: &ObjectLocation, max: usize) -> Result<Vec<u8>, ObjectError> {
        let found = self
            .send_request("read", &place.url, self.store.get(&place.path))
            .await?;
        if found.meta.size > max as u64 {
            return Err(ObjectError::Size {
                url: place.url.clone(),
                stated: max as u64,
                found: found.meta.size,
            });
        }
        Ok(self.send_request("read", &place.url, found.bytes()).await?.to_vec())
    }

    /// Reads a byte range of an object.
    async fn read_range(
        &self,
        place: &ObjectLocation,
        range: std::ops::Range<u64>,
    ) -> Result<bytes::Bytes, ObjectError> {
        let wanted = range.end - range.start;
        let request = self.store.get_range(&place.path, range);
        let bytes = self.send_request("read", &place.url, request).await?;
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

/// Location of an object: its path in the store and its URL for messages.
#[derive(Debug, Clone)]
struct ObjectLocation {
    path: Path,
    url: String,
}
