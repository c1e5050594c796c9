//! Files and folders that only their owner can read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Creates a folder and its parents with access for its owner only; removes the access of others from an existing
/// folder.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::metadata(path)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Creates a file of this mode, restricted by the umask; fails if the path exists, even as a symbolic link.
pub fn create_file(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// Replaces a file atomically: writes the text beside it under a new name, syncs it, renames it and syncs the folder. A
/// symbolic link at `path` is replaced, not followed. A reader sees the old or the new text, also after a power failure; the
/// new text is on disk when this returns.
pub fn replace_file(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    // Left by an earlier process of the same id.
    let _ = fs::remove_file(&beside);
    let write = || {
        let mut file = create_file(&beside, mode)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })?;
    sync_folder_of(path)
}

/// Syncs the folder of a file, so that its name is on disk.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn an_existing_open_folder_is_closed_to_others() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("state");
        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("set");
        create_folder(&path).expect("closed");
        create_folder(&path.join("deeper/still")).expect("made");
        assert_eq!((mode(&path), mode(&path.join("deeper"))), (0o700, 0o700));
    }

    #[test]
    fn a_link_is_replaced_and_its_target_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let target = dir.path().join("target");
        let link = dir.path().join("link");
        fs::write(&target, "own").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        assert!(create_file(&link, 0o600).is_err());
        replace_file(&link, b"new", 0o600).expect("replaced");
        assert_eq!(fs::read_to_string(&target).expect("read"), "own");
        assert_eq!(
            (fs::read_to_string(&link).expect("read"), mode(&link)),
            ("new".to_owned(), 0o600)
        );
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 2);
    }
}
