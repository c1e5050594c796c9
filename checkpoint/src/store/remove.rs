//! Taking checkpoints away.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use rankguard_model::{JobId, Rank};

use crate::format::{CheckpointId, LENT_FILE, MANIFEST_FILE, shard_file};
use crate::store::files::{self, TEMP_PREFIX};
use crate::store::{Store, StoreError};

/// Shards whose files other checkpoints borrow chunks from, by checkpoint.
pub(crate) type Lent = BTreeMap<CheckpointId, BTreeSet<Rank>>;

impl Store {
    /// Removes a checkpoint, or what is left of one: the manifest first, so that it stops existing before it stops
    /// being whole, then the rest. Shards that another committed checkpoint borrows chunks from stay, and so does their
    /// folder, which is then neither a checkpoint nor torn. Files that are none of ours stay too, and then the folder does,
    /// as an error that names it. May be repeated.
    pub fn remove(&self, job: &JobId, id: CheckpointId) -> Result<(), StoreError> {
        let others = self.committed_ids(job)?.into_iter().filter(|other| *other != id);
        let lent = self.lent_to(job, others)?;
        self.remove_unlent(job, id, &lent).map(|_| ())
    }

    /// What the checkpoints `borrowers` borrow from others. One that cannot be read borrows nothing: it could not be loaded
    /// with what it borrowed either.
    pub(crate) fn lent_to(
        &self,
        job: &JobId,
        borrowers: impl IntoIterator<Item = CheckpointId>,
    ) -> Result<Lent, StoreError> {
        let mut lent = Lent::new();
        for id in borrowers {
            let Ok(manifest) = self.manifest(job, id) else {
                continue;
            };
            let indexes = manifest
                .shards
                .iter()
                .filter_map(|shard| self.read_index(&manifest, shard.rank).ok());
            for origin in indexes
                .flat_map(|index| index.origins)
                .filter(|origin| origin.id() != id)
            {
                lent.entry(origin.id()).or_default().insert(origin.rank);
            }
        }
        Ok(lent)
    }

    /// Removes a checkpoint but for what is lent. Says whether anything is left of it.
    pub(crate) fn remove_unlent(&self, job: &JobId, id: CheckpointId, lent: &Lent) -> Result<bool, StoreError> {
        let dir = self.dir(job, id)?;
        let Some(names) = files::names(&dir)? else {
            return Ok(false);
        };
        let kept: BTreeSet<String> = lent
            .get(&id)
            .into_iter()
            .flatten()
            .map(|rank| shard_file(*rank))
            .collect();
        if !kept.is_empty() {
            files::put_bytes(&dir, LENT_FILE, b"shards here hold chunks of later checkpoints\n")?;
        }
        files::remove_file(&dir.join(MANIFEST_FILE))?;
        files::sync_dir(&dir)?;
        let goes = |name: &&String| is_ours(name) && !kept.contains(*name);
        for name in names.iter().filter(goes) {
            files::remove_file(&dir.join(name))?;
        }
        if !kept.is_empty() {
            files::sync_dir(&dir)?;
            return Ok(true);
        }
        files::remove_file(&dir.join(LENT_FILE))?;
        match fs::remove_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &dir)(error)),
            _ => files::sync_dir(files::parent(&dir)).map(|()| false),
        }
    }

    /// Whether a folder without a manifest is there for what others have borrowed from it.
    pub fn is_lent(&self, job: &JobId, id: CheckpointId) -> Result<bool, StoreError> {
        Ok(self.dir(job, id)?.join(LENT_FILE).is_file())
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
