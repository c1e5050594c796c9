//! The commit point.

use crate::format::{MANIFEST_FILE, Manifest};
use crate::store::files::{self, Put};
use crate::store::{Store, StoreError};

/// How a commit ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// The manifest was not there and is now.
    Committed,
    /// The very same manifest was there.
    AlreadyThere,
}

impl Store {
    /// Makes a checkpoint exist (RG-1). Refuses when a shard or index that the manifest names is missing, of another
    /// size or digest, or of another checkpoint; when a higher generation has committed (see heading `Fencing` of
    /// [`crate::store`]); and when another manifest stands there.
    ///
    /// Images are not read again here: each was checked while it was written and synced before its index; what a disk
    /// does to it afterwards is found by `verify` and by every load.
    pub fn commit(&self, manifest: &Manifest) -> Result<Committed, StoreError> {
        self.commit_unless(manifest, &|| false)
    }

    /// The same, unless `given_up` returns `true` right before the manifest would be written.
    pub fn commit_unless(&self, manifest: &Manifest, given_up: &dyn Fn() -> bool) -> Result<Committed, StoreError> {
        let (job, id) = (&manifest.job, manifest.id());
        let path = self.manifest_path(job, id)?;
        manifest.check().map_err(|problem| StoreError::Manifest {
            path: path.clone(),
            problem,
        })?;
        let committed = self.committed_ids(job)?;
        if let Some(newer) = committed
            .into_iter()
            .rev()
            .find(|other| other.generation > id.generation)
        {
            let job = job.clone();
            return Err(StoreError::Fenced { job, id, newer });
        }
        self.check_run(manifest)?;
        self.load_indexes(manifest)?;
        // Whoever made these folders may have died before it could sync their names.
        files::sync_dir(&self.root)?;
        files::sync_dir(&self.job_dir(job)?)?;
        let dir = self.dir(job, id)?;
        let bytes = manifest.to_bytes();
        if given_up() {
            return Err(StoreError::GivenUp { path });
        }
        match files::put_bytes(&dir, MANIFEST_FILE, &bytes)? {
            Put::Written => Ok(Committed::Committed),
            Put::AlreadyThere if files::read(&path, bytes.len())? == bytes => Ok(Committed::AlreadyThere),
            Put::AlreadyThere => Err(StoreError::Conflict { path }),
        }
    }

    /// Refuses a commit into the folder of another run, and one that a later attempt of its own run supersedes.
    fn check_run(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let (job, id) = (&manifest.job, manifest.id());
        if let (Some(own), Some(record)) = (&manifest.run, self.run_record(job)?)
            && *own != record.run
        {
            return Err(StoreError::OtherRun {
                path: self.job_dir(job)?,
                found: record.run,
                own: own.clone(),
            });
        }
        match self.attempts(job)?.superseded_by(id) {
            // What is there already is only confirmed.
            Some(first) if !self.manifest_path(job, id)?.exists() => Err(StoreError::Superseded {
                job: job.clone(),
                id,
                first,
            }),
            _ => Ok(()),
        }
    }
}
