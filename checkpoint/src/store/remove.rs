//! Removal of checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rankguard_model::{JobId, Rank};

use crate::format::{CheckpointId, LENT_FILE, MANIFEST_FILE, shard_file};
use crate::store::disk::{self, FileOperation};
use crate::store::files::{self, TEMP_PREFIX};
use crate::store::fill_lease::FILL_LEASE;
use crate::store::temp_lock::{self, TempOwner};
use crate::store::{Store, StoreError};

/// Shards that other checkpoints borrow chunks from, by checkpoint.
pub(crate) type BorrowedShards = BTreeMap<CheckpointId, BTreeSet<Rank>>;

/// Name prefix of a folder that is being removed.
const ASIDE_PREFIX: &str = ".tmp-removed-";

/// Extent of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovalResult {
    /// The folder was removed.
    Whole,
    /// All files were removed except shards that others borrow from.
    Lends,
    /// The manifest was removed; files for the next collection remain.
    Part,
    /// Nothing was removed.
    Refused,
}

/// Files of a folder that its removal deletes, and what remains.
#[derive(Debug)]
pub(crate) struct FolderRemoval {
    dir: PathBuf,
    /// True if the folder exists.
    is_present: bool,
    /// True if shards remain of which other checkpoints borrow chunks.
    lends: bool,
    /// Names of the files that are removed after the manifest.
    files: Vec<String>,
    /// Names of files that are not of a store; they remain.
    foreign: Vec<String>,
    /// Bytes of all removed files.
    pub(crate) freed_bytes: u64,
}

impl FolderRemoval {
    /// Returns the result of a removal that is not interrupted.
    pub(crate) fn result(&self) -> Result<RemovalResult, StoreError> {
        if self.lends {
            Ok(RemovalResult::Lends)
        } else if self.foreign.is_empty() {
            Ok(RemovalResult::Whole)
        } else {
            Err(StoreError::ForeignFiles {
                path: self.dir.clone(),
                names: self.foreign.clone(),
            })
        }
    }
}

impl Store {
    /// Removes a checkpoint, or the rest of one: the manifest first, so that it stops existing before it becomes
    /// incomplete, then the other files. Shards that another committed checkpoint borrows from are retained with their
    /// folder, which is then neither a checkpoint nor torn. Unknown files are retained too; the folder then remains,
    /// and the error names it. Idempotent.
    pub fn remove(&self, job: &JobId, id: CheckpointId) -> Result<(), StoreError> {
        let others = self.committed_ids(job)?.into_iter().filter(|other| *other != id);
        let lent = self.borrowed_shards(job, others)?;
        self.remove_unborrowed(job, id, &lent, &|| true).map(|_| ())
    }

    /// Returns the shards that the checkpoints `borrowers` borrow from others. A damaged checkpoint borrows nothing: it
    /// cannot be loaded in any case.
    pub(crate) fn borrowed_shards(
        &self,
        job: &JobId,
        borrowers: impl IntoIterator<Item = CheckpointId>,
    ) -> Result<BorrowedShards, StoreError> {
        let mut lent = BorrowedShards::new();
        for id in borrowers {
            let Some(manifest) = whole(self.manifest(job, id))? else {
                continue;
            };
            for shard in &manifest.shards {
                let Some(index) = whole(self.read_index(&manifest, shard.rank))? else {
                    continue;
                };
                for origin in index.origins.iter().filter(|origin| origin.id() != id) {
                    lent.entry(origin.id()).or_default().insert(origin.rank);
                }
            }
        }
        Ok(lent)
    }

    /// Removes a checkpoint except for borrowed files, as long as `may_go_on` returns `true` before each file.
    pub(crate) fn remove_unborrowed(
        &self,
        job: &JobId,
        id: CheckpointId,
        lent: &BorrowedShards,
        may_go_on: &dyn Fn() -> bool,
    ) -> Result<RemovalResult, StoreError> {
        let removal = self.folder_removal(job, id, lent)?;
        let dir = &removal.dir;
        if !removal.is_present {
            return Ok(RemovalResult::Whole);
        }
        if !may_go_on() {
            return Ok(RemovalResult::Refused);
        }
        if removal.lends {
            files::put_bytes(dir, LENT_FILE, b"shards here hold chunks of later checkpoints\n")?;
        }
        files::remove_file(&dir.join(MANIFEST_FILE))?;
        files::sync_dir(dir)?;
        for name in &removal.files {
            if !may_go_on() {
                return Ok(RemovalResult::Part);
            }
            files::remove_file(&dir.join(name))?;
        }
        if removal.lends {
            files::sync_dir(dir)?;
            return removal.result();
        }
        files::remove_file(&dir.join(LENT_FILE))?;
        // A process that fills this folder finds its lease file and the folder missing, and starts over.
        files::remove_file(&dir.join(FILL_LEASE))?;
        removal.result()?;
        match disk::call(FileOperation::RemoveDir, dir, || fs::remove_dir(dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", dir)(error)),
            _ => files::sync_dir(files::parent(dir)).map(|()| RemovalResult::Whole),
        }
    }

    /// Returns what a removal of a checkpoint deletes, except for the shards of which other checkpoints borrow chunks.
    pub(crate) fn folder_removal(
        &self,
        job: &JobId,
        id: CheckpointId,
        lent: &BorrowedShards,
    ) -> Result<FolderRemoval, StoreError> {
        let dir = self.dir(job, id)?;
        let names = files::names(&dir)?;
        let borrowed: BTreeSet<String> = lent
            .get(&id)
            .into_iter()
            .flatten()
            .map(|rank| shard_file(*rank))
            .collect();
        let mut removal = FolderRemoval {
            is_present: names.is_some(),
            lends: !borrowed.is_empty(),
            dir,
            files: Vec::new(),
            foreign: Vec::new(),
            freed_bytes: 0,
        };
        for name in names.into_iter().flatten().filter(|name| !borrowed.contains(name)) {
            let path = removal.dir.join(&name);
            let is_record = [MANIFEST_FILE, LENT_FILE, FILL_LEASE].contains(&name.as_str());
            if !is_record && !goes_with_its_folder(&removal.dir, &name) {
                removal.foreign.push(name);
                continue;
            }
            if name != LENT_FILE || !removal.lends {
                removal.freed_bytes += path.symlink_metadata().map_or(0, |found| found.len());
            }
            if !is_record {
                removal.files.push(name);
            }
        }
        Ok(removal)
    }

    /// Returns true if the folder of an uncommitted checkpoint can be removed whole: it is not being written or filled, and
    /// has no files of others.
    pub(crate) fn may_remove_uncommitted(&self, job: &JobId, id: CheckpointId) -> Result<bool, StoreError> {
        let removal = self.folder_removal(job, id, &BorrowedShards::new())?;
        Ok(!self.has_live_writer(job, id)? && removal.foreign.is_empty())
    }

    /// Removes a folder without a manifest of which it is not known that no commit follows (RG-1). The folder leaves its
    /// place before its files go: a commit that comes later finds no shards, and a checkpoint that was committed until
    /// then is put back. A folder that is being written or filled, or that has files of others, is left as it is.
    pub(crate) fn remove_uncommitted(&self, job: &JobId, id: CheckpointId) -> Result<RemovalResult, StoreError> {
        let dir = self.dir(job, id)?;
        if !dir.is_dir() {
            return Ok(RemovalResult::Whole);
        }
        let Some(_lease) = self.try_fill_lease(job, id)? else {
            return Ok(RemovalResult::Refused);
        };
        if !self.may_remove_uncommitted(job, id)? {
            return Ok(RemovalResult::Refused);
        }
        let name = format!("{ASIDE_PREFIX}{id}-{}", temp_lock::random_suffix());
        let aside = self.job_dir(job)?.join(name);
        disk::call(FileOperation::Rename, &dir, || fs::rename(&dir, &aside)).map_err(StoreError::io("remove", &dir))?;
        remove_aside(&dir, &aside)
    }

    /// Ends removals that a process left half done.
    pub(crate) fn end_removals(&self, job: &JobId) -> Result<(), StoreError> {
        let parent = self.job_dir(job)?;
        for name in files::names(&parent)?.unwrap_or_default() {
            let rest = name.strip_prefix(ASIDE_PREFIX).and_then(|rest| rest.rsplit_once('-'));
            if let Some(id) = rest.and_then(|(id, _)| id.parse::<CheckpointId>().ok()) {
                remove_aside(&self.dir(job, id)?, &parent.join(&name))?;
            }
        }
        Ok(())
    }

    /// True if a folder without a manifest is retained for chunks that others borrow.
    pub fn is_borrowed_from(&self, job: &JobId, id: CheckpointId) -> Result<bool, StoreError> {
        Ok(self.dir(job, id)?.join(LENT_FILE).is_file())
    }

    /// True if a process holds the fill lease of a folder.
    pub(crate) fn is_being_filled(&self, job: &JobId, id: CheckpointId) -> Result<bool, StoreError> {
        let lease = self.dir(job, id)?.join(FILL_LEASE);
        Ok(matches!(temp_lock::owner_of(&lease), TempOwner::Alive))
    }

    /// True if a process is writing a file of a checkpoint folder, other than the holder of its fill lease.
    pub(crate) fn has_live_writer(&self, job: &JobId, id: CheckpointId) -> Result<bool, StoreError> {
        let dir = self.dir(job, id)?;
        let names = files::names(&dir)?.unwrap_or_default();
        let mut temps = names.iter().filter(|name| is_temp_of_writer(name));
        Ok(temps.any(|name| matches!(temp_lock::owner_of(&dir.join(name)), TempOwner::Alive)))
    }

    /// Removes temporary files of exited writers in the folder of a checkpoint; returns their number.
    pub fn clear_abandoned(&self, job: &JobId, id: CheckpointId) -> Result<u64, StoreError> {
        files::clear_temps(&self.dir(job, id)?, None)
    }
}

/// Removes a folder that has left its place, or puts it back if it has a manifest.
fn remove_aside(dir: &Path, aside: &Path) -> Result<RemovalResult, StoreError> {
    let manifest = aside.join(MANIFEST_FILE);
    match disk::call(FileOperation::Stat, &manifest, || manifest.symlink_metadata()) {
        Ok(_) => {
            disk::call(FileOperation::Rename, aside, || fs::rename(aside, dir))
                .map_err(StoreError::io("put back", dir))?;
            return files::sync_dir(files::parent(dir)).map(|()| RemovalResult::Refused);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::io("look at", &manifest)(error)),
    }
    match disk::call(FileOperation::RemoveDir, aside, || fs::remove_dir_all(aside)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", aside)(error)),
        _ => files::sync_dir(files::parent(dir)).map(|()| RemovalResult::Whole),
    }
}

/// Maps permanent damage to `None`. A temporary read error is returned, because an unreadable checkpoint may borrow any
/// shard.
fn whole<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(whole) => Ok(Some(whole)),
        Err(error) if error.is_retryable() => Err(error),
        Err(_) => Ok(None),
    }
}

fn is_temp_of_writer(name: &str) -> bool {
    name.starts_with(TEMP_PREFIX) && name != FILL_LEASE
}

fn is_ours(name: &str) -> bool {
    let rank_file = name.starts_with("rank-") && (name.ends_with(".shard") || name.ends_with(".index"));
    rank_file || is_temp_of_writer(name)
}

/// True for the files of a store, and for files staged by a client that is gone.
fn goes_with_its_folder(dir: &Path, name: &str) -> bool {
    is_ours(name) || temp_lock::is_stale_staged(&dir.join(name))
}
