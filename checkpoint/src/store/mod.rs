//! The disk tier: a directory that may be shared by all nodes.
//!
//! ```text
//! <store>/<job>/<step:012>-g<generation>/rank-00000.shard   image, raw, or what is new of it
//!                                        rank-00000.index   what lies where, digest and place of every chunk
//!                                        MANIFEST           digest of every index; the commit point
//! <store>/<job>/RUN                          the run that the folder belongs to
//!               ATTEMPT-g<generation>        an attempt of it, by its first generation
//! ```
//!
//! `RUN` is written before anything else of a run, then the `ATTEMPT`, then checkpoints; a folder without records is older than
//! they are, imported, or a local trainer's ([`crate::claim`]).
//!
//! # What is written first, and why
//!
//! `.shard`, then `.index`, then, when every rank has both, `MANIFEST`. Each file is written under a temporary name in
//! the same folder, synced, renamed to a name that must not exist yet, and the folder is synced before anyone is told.
//! So whatever moment a process or a machine dies at, a file under its final name is whole; an index never names chunks
//! that were not written; a manifest never names an index that was not synced. Removal goes the other way: `MANIFEST`
//! first, then a sync, then the rest. A folder without `MANIFEST` is torn: it is no checkpoint, and [`crate::retention`]
//! clears it away once a newer checkpoint is committed.
//!
//! # Fencing
//!
//! The controller decides which generation may act; it fences the others before it lets a new one start. The store adds
//! two rules that hold even if that fails: nothing is overwritten, so two generations (which have folders of their own)
//! cannot mix; and [`Store::commit`] refuses a generation when a higher one has a manifest. That check and the rename
//! are not one step, so a stale commit may still slip in between; it then has an older name than the newest, by
//! [`CheckpointId`]'s order, and is never loaded in its place.

mod commit;
pub(crate) mod direct;
pub mod disk;
mod error;
pub(crate) mod files;
mod fill_lease;
mod incoming;
mod lease;
mod left;
mod list;
mod modes;
pub(crate) mod reader;
pub(crate) mod remove;
mod run_files;
pub(crate) mod runs;
mod shard;
mod stream;
mod temp_lock;
mod work_record;

use std::path::{Path, PathBuf};

use rankguard_model::{JobId, Rank};

pub use commit::Committed;
pub use error::StoreError;
pub use fill_lease::FillLease;
pub use incoming::{IncomingFile, Published, ensure_folder_of};
pub use lease::Lease;
pub use list::{Checkpoint, Depth, Listing, Newest, Problem};
pub use modes::set_store_umask;
pub use shard::Written;
pub use temp_lock::is_stale_staged;
pub(crate) use temp_lock::random_suffix;
pub use work_record::WorkRecord;

use crate::format::{CheckpointId, MANIFEST_FILE, check_job, index_file, shard_file};

/// A checkpoint store in a directory.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Opens a store; makes its directory, and the ones above it, where they are absent.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        files::ensure_dir_all(&root)?;
        Ok(Self { root })
    }

    /// A store to read; its directory may be absent, and then holds nothing.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of a job.
    pub fn job_dir(&self, job: &JobId) -> Result<PathBuf, StoreError> {
        check_job(job)?;
        Ok(self.root.join(job.as_str()))
    }

    /// Folder of a checkpoint.
    pub fn dir(&self, job: &JobId, id: CheckpointId) -> Result<PathBuf, StoreError> {
        Ok(self.job_dir(job)?.join(id.to_string()))
    }

    /// Image of a rank.
    pub fn shard_path(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
        Ok(self.dir(job, id)?.join(shard_file(rank)))
    }

    /// Index of a rank.
    pub fn index_path(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
        Ok(self.dir(job, id)?.join(index_file(rank)))
    }

    /// Commit point of a checkpoint.
    pub fn manifest_path(&self, job: &JobId, id: CheckpointId) -> Result<PathBuf, StoreError> {
        Ok(self.dir(job, id)?.join(MANIFEST_FILE))
    }
}
