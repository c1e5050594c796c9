//! Commit of a checkpoint manifest.

use crate::format::{MANIFEST_FILE, Manifest, ShardIndex};
use crate::store::files::{self, RenameResult};
use crate::store::{Store, StoreError};

/// Result of a successful commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitResult {
    /// The manifest was written.
    Committed,
    /// An identical manifest already existed.
    AlreadyThere,
}

impl Store {
    /// Writes the manifest, which makes the checkpoint exist (RG-1). Returns an error if the manifest is invalid; if a
    /// shard or index that it names is missing, of another size or digest, or of another checkpoint; if a higher
    /// generation has committed (see heading `Fencing` of [`crate::store`]); if the folder belongs to another run, or a
    /// later attempt superseded the checkpoint; and if a different manifest exists.
    ///
    /// Images are not read again: each was verified while it was written and synced before its index; later damage on
    /// disk is detected by `verify` and by every load.
    pub fn commit(&self, manifest: &Manifest) -> Result<CommitResult, StoreError> {
        self.commit_if(manifest, &mut |_| true)
    }

    /// Commits as [`commit`](Self::commit) does; returns [`StoreError::GivenUp`] if `accepts` returns false for the
    /// indexes of the checkpoint immediately before the manifest is written.
    pub fn commit_if(
        &self,
        manifest: &Manifest,
        accepts: &mut dyn FnMut(&[ShardIndex]) -> bool,
    ) -> Result<CommitResult, StoreError> {
        let job = &manifest.job;
        let id = manifest.id();
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
        let indexes = self.load_indexes(manifest)?;
        // The process that created these folders may have died before it synced their parent directories.
        files::sync_dir(&self.root)?;
        files::sync_dir(&self.job_dir(job)?)?;
        let dir = self.dir(job, id)?;
        let bytes = manifest.to_bytes();
        if !accepts(&indexes) {
            return Err(StoreError::GivenUp { path });
        }
        match files::put_bytes(&dir, MANIFEST_FILE, &bytes)? {
            RenameResult::Written => Ok(CommitResult::Committed),
            RenameResult::AlreadyThere if files::read(&path, bytes.len())? == bytes => Ok(CommitResult::AlreadyThere),
            RenameResult::AlreadyThere => Err(StoreError::Conflict { path }),
        }
    }

    /// Refuses a commit into the folder of another run, and one that a later attempt of the same run supersedes.
    fn check_run(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let job = &manifest.job;
        let id = manifest.id();
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
            // A repeated commit of an existing manifest writes nothing and succeeds.
            Some(first) if !self.manifest_path(job, id)?.exists() => Err(StoreError::Superseded {
                job: job.clone(),
                id,
                first,
            }),
            _ => Ok(()),
        }
    }
}
