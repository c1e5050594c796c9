//! Who reads a checkpoint, or borrows from it, holds it: retention clears nothing of it away meanwhile.
//!
//! A lease is a shared advisory lock (`flock`) on the manifest, so it ends with its process whatever happens to that, and
//! needs no clock. On a filesystem without such locks there are no leases: a reader then finds out by a missing file, as an
//! error that may be tried again with the next checkpoint, and never by wrong bytes.

use std::fs::File;
use std::time::Duration;

use rankguard_model::JobId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::CheckpointId;
use crate::store::{Store, StoreError, files};

/// Tries to take a lease before the checkpoint counts as being removed, and the pause between them.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Held while it lives.
#[derive(Debug)]
pub struct Lease {
    id: CheckpointId,
    _manifest: File,
}

impl Lease {
    /// What is held.
    pub fn id(&self) -> CheckpointId {
        self.id
    }
}

impl Store {
    /// Holds a committed checkpoint. Fails where there is none, or where it is being removed.
    pub fn lease(&self, job: &JobId, id: CheckpointId) -> Result<Lease, StoreError> {
        for _ in 0..LOCK_TRIES {
            if let Some(_manifest) = self.lock(job, id, FlockOperation::NonBlockingLockShared)? {
                return Ok(Lease { id, _manifest });
            }
            // A writer that publishes the manifest, or a collection that only looks, holds it for a moment.
            std::thread::sleep(LOCK_PAUSE);
        }
        Err(StoreError::Busy {
            path: self.manifest_path(job, id)?,
        })
    }

    /// Keeps others from taking a lease while it lives; `None` while somebody has one.
    pub(crate) fn hold_alone(&self, job: &JobId, id: CheckpointId) -> Result<Option<Lease>, StoreError> {
        let locked = self.lock(job, id, FlockOperation::NonBlockingLockExclusive)?;
        Ok(locked.map(|_manifest| Lease { id, _manifest }))
    }

    fn lock(&self, job: &JobId, id: CheckpointId, how: FlockOperation) -> Result<Option<File>, StoreError> {
        let path = self.manifest_path(job, id)?;
        let (file, _) = files::open(&path)?;
        match flock(&file, how) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            // No locks here.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(StoreError::io("lock", &path)(error.into())),
        }
        // It may have been removed between the two.
        files::open(&path)?;
        Ok(Some(file))
    }
}
