//! Ownership of temporary files.
//!
//! A writer holds an exclusive advisory lock (`flock`) on its temporary file. The kernel releases the lock when the
//! process ends, in any PID namespace and on any node, so a temporary file that can be locked has no owner. On
//! filesystems without locks, the age decides.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Time without a write after which a temporary file is abandoned, on filesystems without locks.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Time without a write after which a staged file is abandoned.
const STAGED_FOR: Duration = Duration::from_secs(3600);

/// Returns a suffix that is unique across processes: process ids repeat across PID namespaces and nodes.
pub(crate) fn random_suffix() -> String {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}

/// Locks a temporary file that was just created; `false` if another process removed it between the two calls.
pub(super) fn lock_new(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        // A process that searches for abandoned files holds the lock, and removes this one.
        Err(Errno::WOULDBLOCK) => false,
        // The name is absent if such a process was faster. Without locks there is none.
        _ => file.metadata().map_or(true, |found| found.nlink() > 0),
    }
}

/// Releases the lock of a file that now has its final name.
pub(super) fn unlock(file: &File) {
    let _ = flock(file, FlockOperation::Unlock);
}

/// Ownership of a temporary file.
#[derive(Debug)]
pub(super) enum TempOwner {
    /// The owner is writing.
    Alive,
    /// No owner. The file is locked while this value lives.
    None(Option<File>),
}

/// Returns the ownership of a temporary file. A regular file that cannot be opened counts as owned.
pub(super) fn owner_of(path: &Path) -> TempOwner {
    // A lock on a network filesystem requires a file that is open for writing.
    let Ok(file) = OpenOptions::new().write(true).open(path) else {
        return match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => TempOwner::Alive,
            // Removed meanwhile, or not the file of a writer.
            _ => TempOwner::None(None),
        };
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => TempOwner::None(Some(file)),
        Err(Errno::WOULDBLOCK) => TempOwner::Alive,
        Err(_) => {
            let modified = file.metadata().and_then(|found| found.modified());
            let age = modified.ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > ABANDONED_AFTER) {
                TempOwner::None(Some(file))
            } else {
                TempOwner::Alive
            }
        }
    }
}

/// True if a file was staged by a client of a `file://` mirror (the name of a store object, `#` and a number) and was
/// not written for an hour. Such files have no lock.
pub fn is_stale_staged(path: &Path) -> bool {
    let modified = || fs::symlink_metadata(path).and_then(|found| found.modified());
    is_staged(path)
        && modified()
            .ok()
            .and_then(|at| at.elapsed().ok())
            .is_some_and(|age| age > STAGED_FOR)
}

fn is_staged(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((object, number)) = name.rsplit_once('#') else {
        return false;
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_mark = object
        .chars()
        .all(|letter| letter.is_ascii_uppercase() || letter == '-');
    is_number && (object.starts_with("rank-") || is_mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_staged_names_of_our_objects_are_leftovers() {
        for (name, is) in [
            ("rank-00000.shard#1", true),
            ("MANIFEST#12", true),
            ("UNDER-WAY#3", true),
            ("rank-00000.shard", false),
            ("rank-00000.shard#", false),
            ("notes.txt#1", false),
            ("rank-00000.shard#x", false),
        ] {
            assert_eq!(is_staged(Path::new(name)), is, "{name}");
        }
    }

    #[test]
    fn a_file_has_an_owner_until_its_lock_is_released() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join(".tmp-x");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("new");
        assert!(lock_new(&file));
        assert!(matches!(owner_of(&path), TempOwner::Alive));
        drop(file);
        let TempOwner::None(held) = owner_of(&path) else {
            panic!("nobody holds it")
        };
        assert!(held.is_some());
        assert!(matches!(owner_of(&path), TempOwner::Alive), "held by who found it");
        assert_ne!(random_suffix(), random_suffix());
    }

    #[test]
    fn a_file_that_was_removed_before_its_lock_is_not_used() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join(".tmp-x");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("new");
        fs::remove_file(&path).expect("removed");
        assert!(!lock_new(&file));
    }
}
