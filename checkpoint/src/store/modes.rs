//! Modes of the files of a store. A daemon keeps its own files private by its umask, but a store is shared: others read its
//! checkpoints as far as the umask allowed with which the daemon was started.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The umask of stores; the process's own one when it is no umask.
static STORE_UMASK: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the umask of stores, for a process whose own umask is stricter.
pub fn set_store_umask(umask: u32) {
    STORE_UMASK.store(umask & 0o777, Ordering::Relaxed);
}

fn mode(wanted: u32) -> Option<Permissions> {
    let umask = STORE_UMASK.load(Ordering::Relaxed);
    (umask != u32::MAX).then(|| Permissions::from_mode(wanted & !umask))
}

/// Gives a new file its mode. Not every file system has modes, and the bytes do not depend on them.
pub(super) fn share_file(file: &File) {
    if let Some(mode) = mode(0o666) {
        let _ = file.set_permissions(mode);
    }
}

/// Gives a new directory its mode.
pub(super) fn share_dir(path: &Path) {
    if let Some(mode) = mode(0o777) {
        let _ = fs::set_permissions(path, mode);
    }
}

/// Gives a new directory the owner of the directory that holds it, where this process may: a controller that runs as root makes
/// the folders of jobs into which agents of another user write.
pub(super) fn inherit_owner(path: &Path) {
    let Some(holder) = path.parent().and_then(|parent| fs::metadata(parent).ok()) else {
        return;
    };
    if fs::metadata(path).is_ok_and(|own| (own.uid(), own.gid()) != (holder.uid(), holder.gid())) {
        let _ = lchown(path, Some(holder.uid()), Some(holder.gid()));
    }
}
