//! Permissions of the files of a store. A daemon protects its own files by a strict umask, but a store is shared: its
//! files use the umask with which the daemon was started.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Umask of stores; `u32::MAX` means the umask of the process.
static STORE_UMASK: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the umask of stores, for a process with a stricter umask of its own.
pub fn set_store_umask(umask: u32) {
    STORE_UMASK.store(umask & 0o777, Ordering::Relaxed);
}

fn mode(wanted: u32) -> Option<Permissions> {
    let umask = STORE_UMASK.load(Ordering::Relaxed);
    (umask != u32::MAX).then(|| Permissions::from_mode(wanted & !umask))
}

/// Sets the mode of a new file. Errors are ignored: some filesystems have no modes, and the content does not depend on
/// them.
pub(super) fn share_file(file: &File) {
    if let Some(mode) = mode(0o666) {
        let _ = file.set_permissions(mode);
    }
}

/// Sets the mode of a new directory.
pub(super) fn share_dir(path: &Path) {
    if let Some(mode) = mode(0o777) {
        let _ = fs::set_permissions(path, mode);
    }
}

/// Sets the owner of a new directory to that of its parent, if permitted: a controller that runs as root creates the
/// job folders into which agents of another user write.
pub(super) fn inherit_owner(path: &Path) {
    let Some(holder) = path.parent().and_then(|parent| fs::metadata(parent).ok()) else {
        return;
    };
    if fs::metadata(path).is_ok_and(|own| (own.uid(), own.gid()) != (holder.uid(), holder.gid())) {
        let _ = lchown(path, Some(holder.uid()), Some(holder.gid()));
    }
}
