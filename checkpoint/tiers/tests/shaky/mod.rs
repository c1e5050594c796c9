//! Object store that fails, hangs and counts as configured.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// Counters and failure settings.
#[derive(Debug, Default)]
pub struct Counts {
    /// Writes of any kind so far: objects, parts, ends of uploads.
    pub writes: AtomicU64,
    /// Reads of bodies so far.
    pub reads: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// First write that fails; 0 for none.
    pub fail_from: AtomicU64,
    /// Reads hang if it is 1.
    pub hang: AtomicU64,
    /// All reads fail if it is 1.
    pub fail_reads: AtomicU64,
    /// Requested reads, successful or not.
    pub asked: AtomicU64,
    /// Multipart uploads that are neither completed nor aborted.
    pub open_uploads: AtomicU64,
    /// Removed objects, in order.
    pub removed: Mutex<Vec<String>>,
}

impl Counts {
    fn write(&self) -> Result<()> {
        let nth = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let from = self.fail_from.load(Ordering::SeqCst);
        if from > 0 && nth >= from {
            let source = format!("write {nth} fails").into();
            return Err(Error::Generic { store: "shaky", source });
        }
        Ok(())
    }

    /// Fails from the `nth` write on, counted from now; 0 ends the failures.
    pub fn fail_from(&self, nth: u64) {
        self.writes.store(0, Ordering::SeqCst);
        self.fail_from.store(nth, Ordering::SeqCst);
    }
}

#[derive(Debug)]
pub struct Shaky {
    inner: Arc<dyn ObjectStore>,
    pub counts: Arc<Counts>,
}

impl Shaky {
    pub fn over(inner: Arc<dyn ObjectStore>) -> (Arc<Self>, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let shaky = Self {
            inner,
            counts: counts.clone(),
        };
        (Arc::new(shaky), counts)
    }
}

impl fmt::Display for Shaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shaky {}", self.inner)
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    counts: Arc<Counts>,
}

#[async_trait::async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.counts.write() {
            Ok(()) => self.inner.put_part(data),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.counts.write()?;
        let ended = self.inner.complete().await?;
        self.counts.open_uploads.fetch_sub(1, Ordering::SeqCst);
        Ok(ended)
    }

    async fn abort(&mut self) -> Result<()> {
        self.counts.open_uploads.fetch_sub(1, Ordering::SeqCst);
        self.inner.abort().await
    }
}

#[async_trait::async_trait]
impl ObjectStore for Shaky {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.counts.write()?;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.counts.write()?;
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        self.counts.open_uploads.fetch_add(1, Ordering::SeqCst);
        let counts = self.counts.clone();
        Ok(Box::new(Upload { inner, counts }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.counts.hang.load(Ordering::SeqCst) == 1 {
            std::future::pending::<()>().await;
        }
        let head = options.head;
        self.counts.asked.fetch_add(1, Ordering::SeqCst);
        if self.counts.fail_reads.load(Ordering::SeqCst) == 1 {
            let source = "no read succeeds".into();
            return Err(Error::Generic { store: "shaky", source });
        }
        let found = self.inner.get_opts(location, options).await?;
        if !head {
            self.counts.reads.fetch_add(1, Ordering::SeqCst);
            self.counts
                .read_bytes
                .fetch_add(found.range.end - found.range.start, Ordering::SeqCst);
        }
        Ok(found)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let counts = self.counts.clone();
        let noted = locations.inspect(move |location| {
            if let Ok(location) = location {
                counts.removed.lock().unwrap().push(location.to_string());
            }
        });
        self.inner.delete_stream(noted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
