//! Disk tier: a checkpoint store in a directory that all nodes may share.
//!
//! ```text
//! <store>/<job>/<step:012>-g<generation>/rank-00000.shard   image, raw, or its new chunks
//!                                        rank-00000.index   tensor table, digest and location of every chunk
//!                                        MANIFEST           digest of every index; the commit point
//! <store>/<job>/RUN                          the run that the folder belongs to
//!               ATTEMPT-g<generation>        an attempt of it, by its first generation
//! ```
//!
//! `RUN` is written before anything else of a run, then the `ATTEMPT`, then checkpoints. A folder without records is
//! older than the records, imported, or of a local trainer ([`crate::claim`]).
//!
//! # Write order
//!
//! `.shard`, then `.index`, then, when every rank has both, `MANIFEST`. Each file is written under a temporary name in
//! the same folder, synced and renamed to a name that must not exist yet; the folder is synced before success is
//! reported. Whenever a process or a machine dies, a file under its final name is therefore complete; an index never
//! names chunks that were not written; a manifest never names an index that was not synced.
//!
//! Removal uses the reverse order: `MANIFEST` first, then a sync, then the rest. A folder without `MANIFEST` is torn:
//! it is no checkpoint, and [`crate::retention`] removes it once a newer checkpoint is committed, or, if its attempt is
//! void or its generation has ended, when the shard of such an attempt is reported.
//!
//! # Fencing
//!
//! The controller decides which generation may act; it fences the others before it lets a new one start. The store adds
//! two rules that hold even if that fails: nothing is overwritten, so two generations (which have folders of their own)
//! cannot mix; and [`Store::commit`] refuses a generation if a higher one has a manifest. That check and the rename are
//! not atomic, so a stale commit may still succeed in between; it then sorts before the newest in the order of
//! [`CheckpointId`], and is never loaded in its place.

mod commit;
pub(crate) mod direct;
pub mod disk;
mod error;
pub(crate) mod files;
mod fill_lease;
mod incoming;
mod lease;
mod list;
mod modes;
pub(crate) mod reader;
pub(crate) mod remove;
mod run_files;
pub(crate) mod runs;
mod shard;
mod stream;
mod temp_lock;
mod uncommitted_shards;
mod work_record;

use std::path::{Path, PathBuf};

use rankguard_model::{JobId, Rank};

pub use commit::CommitResult;
pub use error::StoreError;
pub use fill_lease::FillLease;
pub use incoming::{IncomingFile, PublishResult, ensure_folder_of};
pub use lease::CheckpointLease;
pub use list::{Checkpoint, CheckpointListing, NewestCheckpoint, StoreProblem, VerifyDepth};
pub use modes::set_store_umask;
pub use shard::WrittenShard;
pub use temp_lock::is_stale_staged;
pub(crate) use temp_lock::random_suffix;
pub use work_record::WorkRecord;

use crate::format::{CheckpointId, MANIFEST_FILE, check_job, index_file, shard_file};

/// Directory of parity in a store; no valid job name.
const PARITY_FOLDER: &str = ".parity";

/// Checkpoint store in a directory.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Opens a store; creates its directory and the parents if they are absent.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        files::ensure_dir_all(&root)?;
        Ok(Self { root })
    }

    /// Opens a store for reading; an absent directory is an empty store.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the usual directory of the parity of all jobs.
    pub fn parity_root(&self) -> PathBuf {
        self.root.join(PARITY_FOLDER)
    }

    /// Returns true if the usual directory has parity of a checkpoint. Only a repair shows whether it suffices to rebuild
    /// what is lost.
    pub fn has_parity(&self, job: &JobId, id: CheckpointId) -> bool {
        self.parity_root().join(job.as_str()).join(id.to_string()).is_dir()
    }

    /// Returns the command that rebuilds damaged parts of a checkpoint from its parity; `None` without parity.
    pub fn parity_repair(&self, job: &JobId, id: CheckpointId) -> Option<String> {
        self.has_parity(job, id).then(|| {
            format!(
                "rankguard checkpoint repair --step {} --job {job} --dir {}",
                id.step,
                self.root.display()
            )
        })
    }

    /// Returns the folder of a job.
    pub fn job_dir(&self, job: &JobId) -> Result<PathBuf, StoreError> {
        check_job(job)?;
        Ok(self.root.join(job.as_str()))
    }

    /// Returns the folder of a checkpoint.
    pub fn dir(&self, job: &JobId, id: CheckpointId) -> Result<PathBuf, StoreError> {
        Ok(self.job_dir(job)?.join(id.to_string()))
    }

    /// Returns the path of the image of a rank.
    pub fn shard_path(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
        Ok(self.dir(job, id)?.join(shard_file(rank)))
    }

    /// Returns the path of the index of a rank.
    pub fn index_path(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
        Ok(self.dir(job, id)?.join(index_file(rank)))
    }

    /// Returns the path of the manifest of a checkpoint.
    pub fn manifest_path(&self, job: &JobId, id: CheckpointId) -> Result<PathBuf, StoreError> {
        Ok(self.dir(job, id)?.join(MANIFEST_FILE))
    }
}
