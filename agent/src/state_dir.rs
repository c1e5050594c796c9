//! Modes of the agent's state directory (RG-13): its files are private to the agent. Where ranks run as other users,
//! these may traverse the directory to reach the rank socket and their own output, but cannot list it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Folder that ranks of other users traverse.
const PASSED: &str = "jobs";

/// Creates the directory, or tightens the modes of an existing one.
pub(crate) fn prepare_state_dir(path: &Path, ranks_are_separate: bool) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    set_mode(path, if ranks_are_separate { 0o711 } else { 0o700 })?;
    tighten_files(path)
}

/// Removes the permissions of other users from every file of the directory.
pub(crate) fn tighten_files(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let wanted = if kind.is_file() {
            0o600
        } else if kind.is_dir() && entry.file_name() != PASSED {
            0o700
        } else {
            continue;
        };
        if let Err(problem) = set_mode(&entry.path(), wanted) {
            // Another user owns it and had access before.
            tracing::error!(path = %entry.path().display(), %problem, "cannot tighten the mode of a file in the state directory");
        }
    }
    Ok(())
}

/// Removes the permissions that `mode` lacks from a file, and grants those that it has.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        // Removed meanwhile.
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(problem) => return Err(problem),
    };
    let before = found.mode() & 0o7777;
    if before == mode {
        return Ok(());
    }
    if before & !mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "tightened the mode from {before:o} to {mode:o}");
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o7777
    }

    #[test]
    fn a_wide_directory_is_tightened_with_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent");
        fs::create_dir_all(path.join("jobs/train")).expect("made");
        fs::write(path.join("spool.redb"), "x").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("set");
        fs::set_permissions(path.join("spool.redb"), Permissions::from_mode(0o644)).expect("set");
        prepare_state_dir(&path, false).expect("prepared");
        assert_eq!((mode(&path), mode(&path.join("spool.redb"))), (0o700, 0o600));
        prepare_state_dir(&path, true).expect("prepared");
        assert_eq!(mode(&path), 0o711);
    }
}
