//! Marks of saves that are never committed. Ranks without an agent share only the store, and would wait for each other
//! until their deadline.
//!
//! A rank that cannot write its shard, and rank 0 if a commit failed, leave a mark with the reason in the folder of the
//! checkpoint. Rank 0 reads the mark of the rank for which it waits, and the others read that of rank 0. A mark from
//! before the session, by the clock of the file system, is of an earlier program and is ignored.
//!
//! A mark has the name of a temporary file, so that it is removed with its folder. It is advisory: if it cannot be
//! written, the other ranks wait until their deadline.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::claim::random_run;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_model::{JobId, Rank};

/// Maximum length of a reason, bytes.
const REASON_BYTES: u64 = 4_096;

/// Marks in the folder of a job.
#[derive(Debug)]
pub(crate) struct VoidMarks {
    store: Store,
    job: JobId,
    rank: Rank,
    /// Start of the session by the clock of the file system; `None` if it cannot be written, and no mark is then read.
    opened_at: Option<SystemTime>,
}

impl VoidMarks {
    /// Opens the marks of a job for one rank.
    pub(crate) fn open(store: &Store, job: &JobId, rank: Rank) -> Self {
        Self {
            store: store.clone(),
            job: job.clone(),
            rank,
            opened_at: time_of(store.root()).ok(),
        }
    }

    fn path(&self, id: CheckpointId, rank: Rank) -> Option<PathBuf> {
        let dir = self.store.dir(&self.job, id).ok()?;
        Some(dir.join(format!(".tmp-void-{:05}", rank.0)))
    }

    /// Marks a save of this rank as void. Failures are ignored.
    pub(crate) fn put(&self, id: CheckpointId, reason: &str) {
        let Some(path) = self.path(id, self.rank) else { return };
        if let Some(dir) = path.parent() {
            let _ = fs::create_dir_all(dir);
        }
        let written = File::create(&path).and_then(|mut file| file.write_all(reason.as_bytes()));
        drop(written);
    }

    /// Removes the mark of this rank before it tries again.
    pub(crate) fn remove(&self, id: CheckpointId) {
        if let Some(path) = self.path(id, self.rank) {
            let _ = fs::remove_file(path);
        }
    }

    /// Returns the reason why a save of another rank is void, if it has marked it in this session.
    pub(crate) fn reason_of(&self, id: CheckpointId, rank: Rank) -> Option<String> {
        let path = self.path(id, rank)?;
        let file = File::open(path).ok()?;
        let marked_at = file.metadata().and_then(|found| found.modified()).ok()?;
        let mut reason = String::new();
        let is_fresh = marked_at >= self.opened_at?;
        let read = file.take(REASON_BYTES).read_to_string(&mut reason);
        // An empty mark is still being written.
        (is_fresh && read.is_ok() && !reason.is_empty()).then_some(reason)
    }
}

/// Returns the time by the clock of the file system of a directory.
fn time_of(dir: &Path) -> io::Result<SystemTime> {
    let path = dir.join(format!(".tmp-clock-{}", random_run()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let made_at = file.metadata().and_then(|found| found.modified());
    let _ = fs::remove_file(&path);
    made_at
}
