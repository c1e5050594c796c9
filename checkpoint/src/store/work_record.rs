//! Records of unfinished work outside the store, such as multipart uploads. If the process is killed, another one finds
//! the record and cleans up.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

use rankguard_model::JobId;

use crate::store::temp_lock::{self, TempOwner};
use crate::store::{Store, StoreError, files};

/// Folder of the records, in the folder of a job.
const RECORDS: &str = ".uploads";

/// Maximum size of a record that is read, bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Record that this process owns while the value lives.
#[derive(Debug)]
pub struct WorkRecord {
    path: PathBuf,
    content: Vec<u8>,
    _locked: Option<File>,
}

impl Store {
    /// Writes a record of new work. The record is on disk when this returns.
    pub fn record_work(&self, job: &JobId, content: &[u8]) -> Result<WorkRecord, StoreError> {
        let dir = self.job_dir(job)?.join(RECORDS);
        files::ensure_dir_all(&dir)?;
        loop {
            let path = dir.join(temp_lock::random_suffix());
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&path)
                .map_err(StoreError::io("make", &path))?;
            if !temp_lock::lock_new(&file) {
                continue;
            }
            file.write_all(content)
                .and_then(|()| file.sync_all())
                .map_err(StoreError::io("write", &path))?;
            files::sync_dir(&dir)?;
            return Ok(WorkRecord {
                path,
                content: content.to_vec(),
                _locked: Some(file),
            });
        }
    }

    /// Takes over the records of processes that have ended.
    pub fn abandoned_work(&self, job: &JobId) -> Result<Vec<WorkRecord>, StoreError> {
        let dir = self.job_dir(job)?.join(RECORDS);
        let mut found = Vec::new();
        for name in files::names(&dir)?.unwrap_or_default() {
            let path = dir.join(name);
            let TempOwner::None(Some(locked)) = temp_lock::owner_of(&path) else {
                continue;
            };
            let mut content = Vec::new();
            File::open(&path)
                .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut content))
                .map_err(StoreError::io("read", &path))?;
            found.push(WorkRecord {
                path,
                content,
                _locked: Some(locked),
            });
        }
        Ok(found)
    }
}

impl WorkRecord {
    /// Returns the recorded content; truncated if the process was killed while writing it.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Removes the record after the work has ended, and the folder if it was the last record.
    pub fn finish(self) {
        let _ = fs::remove_file(&self.path);
        if let Some(dir) = self.path.parent() {
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_when_its_owner_is_gone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(dir.path()).expect("a store");
        let job = JobId::from("train");
        let record = store.record_work(&job, b"an upload").expect("written");
        assert!(
            store.abandoned_work(&job).expect("readable").is_empty(),
            "it has an owner"
        );
        drop(record);
        let mut found = store.abandoned_work(&job).expect("readable");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].content(), b"an upload");
        found.remove(0).finish();
        assert!(store.abandoned_work(&job).expect("readable").is_empty());
        assert!(!dir.path().join("train").join(RECORDS).exists());
    }
}
