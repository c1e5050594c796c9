//! Read leases on checkpoints: retention removes nothing of a checkpoint while a reader or a borrower holds a lease.
//!
//! A lease is a shared advisory lock (`flock`) on the manifest, so it ends with its process in every case and needs no
//! clock. On a filesystem without such locks there are no leases: a reader then gets an error for a missing file, which
//! it may retry with the next checkpoint, but never wrong bytes.

use std::fs::File;
use std::time::Duration;

use rankguard_model::JobId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::CheckpointId;
use crate::store::{Store, StoreError, files};

/// Attempts to take a lease before the checkpoint counts as being removed, and the pause between them.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Lease on a checkpoint, held until drop.
#[derive(Debug)]
pub struct CheckpointLease {
    id: CheckpointId,
    _manifest: File,
}

impl CheckpointLease {
    /// Returns the leased checkpoint.
    pub fn id(&self) -> CheckpointId {
        self.id
    }
}

impl Store {
    /// Takes a lease on a committed checkpoint. Fails if there is none, or if it is being removed.
    pub fn lease(&self, job: &JobId, id: CheckpointId) -> Result<CheckpointLease, StoreError> {
        for _ in 0..LOCK_TRIES {
            if let Some(_manifest) = self.lock(job, id, FlockOperation::NonBlockingLockShared)? {
                return Ok(CheckpointLease { id, _manifest });
            }
            // A writer that publishes the manifest, or a collection that is planning, holds the lock for a moment.
            std::thread::sleep(LOCK_PAUSE);
        }
        Err(StoreError::Busy {
            path: self.manifest_path(job, id)?,
        })
    }

    /// Takes the exclusive lock, which prevents new leases while it is held; `None` if a lease is held.
    pub(crate) fn hold_alone(&self, job: &JobId, id: CheckpointId) -> Result<Option<CheckpointLease>, StoreError> {
        let locked = self.lock(job, id, FlockOperation::NonBlockingLockExclusive)?;
        Ok(locked.map(|_manifest| CheckpointLease { id, _manifest }))
    }

    fn lock(&self, job: &JobId, id: CheckpointId, how: FlockOperation) -> Result<Option<File>, StoreError> {
        let path = self.manifest_path(job, id)?;
        let (file, _) = files::open(&path)?;
        match flock(&file, how) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            // The filesystem has no locks.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(StoreError::io("lock", &path)(error.into())),
        }
        // It may have been removed between open and lock.
        files::open(&path)?;
        Ok(Some(file))
    }
}
