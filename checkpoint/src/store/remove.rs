//! Taking checkpoints away.

use std::fs;
use std::io;

use rankguard_model::JobId;

use crate::format::{CheckpointId, MANIFEST_FILE};
use crate::store::disk::{self, Op};
use crate::store::files::{self, TEMP_PREFIX};
use crate::store::{Store, StoreError};

impl Store {
    /// Removes a checkpoint, or what is left of one: the manifest first, so that it stops existing before it stops
    /// being whole, then the rest. Files that are none of ours stay, and then the folder does too, as an error that
    /// names it. May be repeated.
    pub fn remove(&self, job: &JobId, id: CheckpointId) -> Result<(), StoreError> {
        let dir = self.dir(job, id)?;
        let Some(names) = files::names(&dir)? else {
            return Ok(());
        };
        files::remove_file(&dir.join(MANIFEST_FILE))?;
        files::sync_dir(&dir)?;
        for name in names.iter().filter(|name| is_ours(name)) {
            files::remove_file(&dir.join(name))?;
        }
        match disk::call(Op::RemoveDir, &dir, || fs::remove_dir(&dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &dir)(error)),
            _ => files::sync_dir(files::parent(&dir)),
        }
    }

    /// Removes temporary files of a committed checkpoint; nobody writes there any more.
    pub(crate) fn clear_temps(&self, job: &JobId, id: CheckpointId) -> Result<u64, StoreError> {
        files::clear_temps(&self.dir(job, id)?, None)
    }
}

fn is_ours(name: &str) -> bool {
    let rank_file = name.starts_with("rank-") && (name.ends_with(".shard") || name.ends_with(".index"));
    rank_file || name.starts_with(TEMP_PREFIX)
}
