//! Lease to complete a checkpoint folder from another tier, or to remove an incomplete one.
//!
//! Advisory: files appear under their final names only when complete, so two fillers without a lease only waste time. A
//! holder calls [`FillLease::beat`]; a waiter that sees no heartbeat for a while need not wait any longer.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use rankguard_model::JobId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::CheckpointId;
use crate::store::disk::{self, FileOperation};
use crate::store::files;
use crate::store::{Store, StoreError, temp_lock};

/// Name of the lease file. It has the prefix of temporary files, so that older versions remove it.
pub(super) const FILL_LEASE: &str = ".tmp-filling";

/// Minimum time between two heartbeats that are written to disk.
const BEAT: Duration = Duration::from_secs(1);

/// Lease held until drop, which removes its file.
#[derive(Debug)]
pub struct FillLease {
    file: File,
    path: PathBuf,
    last_beat: Mutex<Instant>,
}

impl Store {
    fn fill_lease_path(&self, job: &JobId, id: CheckpointId) -> Result<PathBuf, StoreError> {
        Ok(self.dir(job, id)?.join(FILL_LEASE))
    }

    /// Takes the lease of a checkpoint folder, and creates the folder if absent; `None` while another holder has the
    /// lease.
    pub fn fill_lease(&self, job: &JobId, id: CheckpointId) -> Result<Option<FillLease>, StoreError> {
        files::ensure_dir_all(&self.root)?;
        files::ensure_dir(&self.job_dir(job)?)?;
        files::ensure_dir(&self.dir(job, id)?)?;
        self.try_fill_lease(job, id)
    }

    /// Takes the lease of an existing folder.
    pub(crate) fn try_fill_lease(&self, job: &JobId, id: CheckpointId) -> Result<Option<FillLease>, StoreError> {
        let path = self.fill_lease_path(job, id)?;
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            let file = disk::call(FileOperation::Create, &path, || options.open(&path))
                .map_err(StoreError::io("make", &path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                // Without locks every caller is a holder: correctness does not depend on the lease.
                Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
                Err(error) => return Err(StoreError::io("lock", &path)(error.into())),
            }
            // The previous holder removed the file between the two calls: this lock then excludes no other process.
            if temp_lock::lock_new(&file) {
                let last_beat = Mutex::new(Instant::now());
                return Ok(Some(FillLease { file, path, last_beat }));
            }
        }
    }

    /// Returns the time of the holder's last heartbeat, by the clock of the filesystem; `None` if there is no lease
    /// file.
    pub fn fill_beat(&self, job: &JobId, id: CheckpointId) -> Result<Option<SystemTime>, StoreError> {
        let path = self.fill_lease_path(job, id)?;
        match fs::metadata(&path).and_then(|found| found.modified()) {
            Ok(at) => Ok(Some(at)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("look at", &path)(error)),
        }
    }
}

impl FillLease {
    /// Sends a heartbeat to waiting processes.
    pub fn beat(&self) {
        let mut last = self.last_beat.lock().expect("no holder of the beat panics");
        if last.elapsed() >= BEAT {
            *last = Instant::now();
            // A failed heartbeat only makes a waiter stop waiting earlier.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }
}

impl Drop for FillLease {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, Step};

    use super::*;

    #[test]
    fn one_holder_at_a_time_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = Store::at(dir.path().join("store"));
        let job = JobId::from("train");
        let id = CheckpointId {
            step: Step(10),
            generation: Generation(1),
        };
        let first = store.fill_lease(&job, id).expect("a folder").expect("free");
        assert!(store.fill_lease(&job, id).expect("a folder").is_none());
        assert!(store.fill_beat(&job, id).expect("readable").is_some());
        drop(first);
        assert_eq!(store.fill_beat(&job, id).expect("readable"), None);
        let again = store.fill_lease(&job, id).expect("a folder").expect("free again");
        drop(again);
        let folder = store.dir(&job, id).expect("a path");
        assert_eq!(fs::read_dir(folder).expect("it is there").count(), 0);
    }
}
