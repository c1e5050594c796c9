//! Cleanup of multipart uploads that a killed process leaves behind.
//!
//! The parts of an upload that is neither completed nor aborted cost money and appear in no listing. Each upload id is
//! therefore recorded in the local store, in a file that the uploading process holds locked. The next push of the job,
//! or `checkpoint gc`, aborts the uploads of dead processes. In a `file://` mirror the parts are a file beside the
//! object (`NAME#1`), which is removed when it was not written for an hour.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::{Path as FilePath, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};
use rankguard_checkpoint::store::is_stale_staged;
use rankguard_checkpoint::{Store, WorkRecord};
use rankguard_model::{JobId, with_causes};
use serde::{Deserialize, Serialize};

use super::{ObjectError, ObjectLocation, ObjectTier};

/// Object store with upload ids.
#[derive(Clone)]
pub(super) struct MultipartHandle(pub(super) Arc<dyn MultipartStore>);

impl fmt::Debug for MultipartHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Multipart")
    }
}

/// Recorded upload that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedUpload {
    /// URL of the object store.
    pub url: String,
    /// Path of the object, as its client names it.
    pub path: String,
    pub id: String,
}

/// Returns the recorded uploads of dead processes to any object store.
pub fn unfinished_uploads(store: &Store, job: &JobId) -> Result<Vec<UnfinishedUpload>, ObjectError> {
    let records = store.abandoned_work(job)?;
    let known = records.iter().filter_map(read_record);
    Ok(known.collect())
}

fn read_record(record: &WorkRecord) -> Option<UnfinishedUpload> {
    serde_json::from_slice(record.content()).ok()
}

impl ObjectTier {
    /// Returns the tier with upload ids, so that uploads of killed processes are aborted.
    pub fn with_multipart(self, store: Arc<dyn MultipartStore>) -> Self {
        Self {
            multipart: Some(MultipartHandle(store)),
            ..self
        }
    }

    /// Aborts a job's uploads to this object store by dead processes, and removes files that they staged in a `file://`
    /// mirror. Returns their number. A failed abort is retried at the next call.
    pub async fn end_unfinished_uploads(&self, store: &Store, job: &JobId) -> Result<u64, ObjectError> {
        let mut ended = self.remove_staged(job)?;
        for record in store.abandoned_work(job)? {
            let Some(upload) = read_record(&record) else {
                // The process was killed before the record was complete; no part is sent before that.
                record.finish();
                continue;
            };
            let Some(MultipartHandle(multipart)) = self.multipart.as_ref().filter(|_| upload.url == self.url) else {
                continue;
            };
            let (path, url) = (
                Path::from(upload.path.as_str()),
                format!("{}/{}", self.url, upload.path),
            );
            match self
                .send_request(
                    "abort the upload of",
                    &url,
                    multipart.abort_multipart(&path, &upload.id),
                )
                .await
            {
                Ok(()) | Err(ObjectError::Missing { .. }) => {
                    record.finish();
                    ended += 1;
                }
                Err(problem) => {
                    tracing::warn!(
                        url,
                        problem = with_causes(&problem),
                        "an unfinished upload is still there"
                    );
                }
            }
        }
        Ok(ended)
    }

    fn remove_staged(&self, job: &JobId) -> Result<u64, ObjectError> {
        let Some(root) = &self.folder else { return Ok(0) };
        let mut removed = 0;
        for path in staged_files(&root.join(job.as_str())) {
            let gone = std::fs::remove_file(&path);
            removed += u64::from(gone.is_ok());
        }
        Ok(removed)
    }

    /// Begins a multipart upload with an id that is recorded until the upload ends.
    pub(super) async fn begin_upload(
        &self,
        store: &Store,
        job: &JobId,
        place: &ObjectLocation,
    ) -> Result<Box<dyn MultipartUpload>, ObjectError> {
        let what = "begin to write";
        let Some(MultipartHandle(multipart)) = &self.multipart else {
            return self
                .send_request(
                    what,
                    &place.url,
                    self.store.put_multipart_opts(&place.path, Default::default()),
                )
                .await;
        };
        let id = self
            .send_request(what, &place.url, multipart.create_multipart(&place.path))
            .await?;
        let upload = UnfinishedUpload {
            url: self.url.clone(),
            path: place.path.to_string(),
            id: id.clone(),
        };
        let text = serde_json::to_vec(&upload).unwrap_or_default();
        // A read-only store can be pushed without a record.
        let record = store.record_work(job, &text).inspect_err(|problem| {
            tracing::warn!(%job, problem = with_causes(problem), "an upload is not on record");
        });
        Ok(Box::new(RecordedUpload {
            store: multipart.clone(),
            path: place.path.clone(),
            id,
            parts: Arc::default(),
            begun: 0,
            record: record.ok(),
        }))
    }
}

/// Returns staged files in the checkpoint folders of a job that were not written for an hour.
fn staged_files(job: &FilePath) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(job).into_iter().flatten().flatten();
    let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok());
    let paths = files.flatten().flatten().map(|file| file.path());
    paths.filter(|path| is_stale_staged(path)).collect()
}

/// Multipart upload; its record is removed when it ends.
struct RecordedUpload {
    store: Arc<dyn MultipartStore>,
    path: Path,
    id: String,
    parts: Arc<Mutex<BTreeMap<usize, PartId>>>,
    begun: usize,
    record: Option<WorkRecord>,
}

impl fmt::Debug for RecordedUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedUpload")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = object_store::Result<T>> + Send + 'a>>;

impl MultipartUpload for RecordedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let nth = self.begun;
        self.begun += 1;
        let store = self.store.clone();
        let path = self.path.clone();
        let id = self.id.clone();
        let parts = self.parts.clone();
        Box::pin(async move {
            let part = store.put_part(&path, &id, nth, data).await?;
            let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.insert(nth, part);
            Ok(())
        })
    }

    fn complete<'life, 'call>(&'life mut self) -> StoreFuture<'call, PutResult>
    where
        'life: 'call,
        Self: 'call,
    {
        Box::pin(async move {
            let parts = {
                let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
                parts.values().cloned().collect()
            };
            let ended = self.store.complete_multipart(&self.path, &self.id, parts).await?;
            if let Some(record) = self.record.take() {
                record.finish();
            }
            Ok(ended)
        })
    }

    fn abort<'life, 'call>(&'life mut self) -> StoreFuture<'call, ()>
    where
        'life: 'call,
        Self: 'call,
    {
        Box::pin(async move {
            self.store.abort_multipart(&self.path, &self.id).await?;
            if let Some(record) = self.record.take() {
                record.finish();
            }
            Ok(())
        })
    }
}
