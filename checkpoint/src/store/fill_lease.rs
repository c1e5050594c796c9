//! The right to bring a checkpoint folder to completion from another tier, or to remove what is left of an incomplete one.
//!
//! Advisory: files appear under their names only when they are whole, so two fillers without a lease cost time and nothing else.
//! A holder calls [`FillLease::beat`]; a waiter that sees no beat for a while need not wait any longer.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use rankguard_model::JobId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::CheckpointId;
use crate::store::disk::{self, Op};
use crate::store::files;
use crate::store::{Store, StoreError, temp_lock};

/// Name of the lease's file. It begins like a temporary file, so that older versions remove it.
pub(super) const FILL_LEASE: &str = ".tmp-filling";

/// Shortest time between two beats that reach the disk.
const BEAT: Duration = Duration::from_secs(1);

/// Held while it lives; its file goes with it.
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

    /// Takes the lease of a checkpoint folder, which is made where it is absent; `None` while another holder has it.
    pub fn fill_lease(&self, job: &JobId, id: CheckpointId) -> Result<Option<FillLease>, StoreError> {
        files::ensure_dir_all(&self.root)?;
        files::ensure_dir(&self.job_dir(job)?)?;
        files::ensure_dir(&self.dir(job, id)?)?;
        self.try_fill_lease(job, id)
    }

    /// The same for a folder that exists.
    pub(crate) fn try_fill_lease(&self, job: &JobId, id: CheckpointId) -> Result<Option<FillLease>, StoreError> {
        let path = self.fill_lease_path(job, id)?;
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            let file = disk::call(Op::Create, &path, || options.open(&path)).map_err(StoreError::io("make", &path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                // Without locks every caller is a holder: correctness does not depend on it.
                Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
                Err(error) => return Err(StoreError::io("lock", &path)(error.into())),
            }
            // The holder before removed the file between the two calls: then this lock keeps no other process out.
            if temp_lock::lock_new(&file) {
                let last_beat = Mutex::new(Instant::now());
                return Ok(Some(FillLease { file, path, last_beat }));
            }
        }
    }

    /// When the holder of the lease was last seen at work, by the clock of the filesystem; `None` without a holder's file.
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
    /// Shows waiters that the holder is at work.
    pub fn beat(&self) {
        let mut last = self.last_beat.lock().expect("no holder of the beat panics");
        if last.elapsed() >= BEAT {
            *last = Instant::now();
            // A beat that fails makes a waiter come earlier.
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
        let (store, job) = (Store::at(dir.path().join("store")), JobId::from("train"));
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
