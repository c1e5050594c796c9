//! Access to foreign files, and atomic creation of new files and directories.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::ExchangeError;

/// Opens a regular file and returns its length in bytes. Refuses any other kind: opening a fifo would block.
pub(crate) fn open(path: &Path) -> Result<(File, u64), ExchangeError> {
    let kind = fs::metadata(path).map_err(ExchangeError::io("open", path))?;
    if !kind.is_file() {
        return Err(ExchangeError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(ExchangeError::io("open", path))?;
    Ok((file, kind.len()))
}

/// Reads a file of at most `max` bytes; a longer file is an error.
pub(crate) fn read(path: &Path, max: u64) -> Result<Vec<u8>, ExchangeError> {
    let (file, length) = open(path)?;
    let mut bytes = Vec::new();
    file.take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(ExchangeError::io("read", path))?;
    if bytes.len() as u64 > max {
        let what = format!("has {length} bytes, more than the {max} that are read");
        return Err(ExchangeError::malformed(path, what));
    }
    Ok(bytes)
}

/// Joins `name` to `dir`; returns `None` if the path would leave `dir`.
pub(crate) fn below(dir: &Path, name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !name.is_empty() && !name.contains('\0')).then(|| dir.join(path))
}

/// File or directory that is written under a temporary name beside its target; dropped before [`StagedOutput::put`], it is
/// removed.
pub(crate) struct StagedOutput {
    pub(crate) path: PathBuf,
    target: PathBuf,
    is_replacing: bool,
}

impl StagedOutput {
    /// Chooses a unique temporary name beside `target`. Refuses a target that exists before any work is done.
    ///
    /// With `is_replacing`, [`StagedOutput::put`] replaces a file, or a directory that holds only files of an export.
    pub(crate) fn of(target: &Path, is_replacing: bool) -> Result<Self, ExchangeError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if target.symlink_metadata().is_ok() {
            let path = target.to_owned();
            if !is_replacing {
                return Err(ExchangeError::AlreadyThere { path });
            }
            if let Some(foreign) = foreign_entry(target)? {
                return Err(ExchangeError::NotAnExport { path, foreign });
            }
        }
        let name = target.file_name().ok_or_else(|| ExchangeError::Unfit {
            what: format!("{} is no name for a file", target.display()),
        })?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".tmp-{}-{}-{number}", name.to_string_lossy(), std::process::id());
        Ok(Self {
            path: parent(target).join(name),
            target: target.to_owned(),
            is_replacing,
        })
    }

    /// Renames the draft to its target, which must not exist unless it is replaced, and syncs the directory.
    pub(crate) fn put(self) -> Result<(), ExchangeError> {
        if self.is_replacing && self.target.symlink_metadata().is_ok() {
            return self.exchange();
        }
        match renameat_with(CWD, &self.path, CWD, &self.target, RenameFlags::NOREPLACE) {
            Ok(()) => sync_dir(parent(&self.target)),
            Err(Errno::EXIST) => {
                let path = self.target.clone();
                Err(ExchangeError::AlreadyThere { path })
            }
            // On filesystems without RENAME_NOREPLACE, rely on the check that no target exists.
            Err(Errno::INVAL | Errno::NOSYS) if self.target.symlink_metadata().is_err() => {
                fs::rename(&self.path, &self.target).map_err(ExchangeError::io("rename", &self.target))?;
                sync_dir(parent(&self.target))
            }
            Err(errno) => Err(ExchangeError::io("rename", &self.target)(errno.into())),
        }
    }
}

impl StagedOutput {
    /// Exchanges draft and target; the drop of the draft then removes the previous content.
    fn exchange(self) -> Result<(), ExchangeError> {
        let failed = |errno: Errno| ExchangeError::io("replace", &self.target)(errno.into());
        match renameat_with(CWD, &self.path, CWD, &self.target, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            // On filesystems without RENAME_EXCHANGE, a file is replaced in one step, a directory in two.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let is_dir = self.target.symlink_metadata().is_ok_and(|kind| kind.is_dir());
                if is_dir {
                    fs::remove_dir_all(&self.target).map_err(ExchangeError::io("replace", &self.target))?;
                }
                fs::rename(&self.path, &self.target).map_err(ExchangeError::io("replace", &self.target))?;
            }
            Err(errno) => return Err(failed(errno)),
        }
        sync_dir(parent(&self.target))
    }
}

/// Returns the first entry of a directory that no export writes; `None` for a file or a directory of an export.
fn foreign_entry(target: &Path) -> Result<Option<String>, ExchangeError> {
    let kind = target.symlink_metadata().map_err(ExchangeError::io("read", target))?;
    if !kind.is_dir() {
        return Ok(None);
    }
    for entry in fs::read_dir(target).map_err(ExchangeError::io("read", target))? {
        let name = entry.map_err(ExchangeError::io("read", target))?.file_name();
        let name = name.to_string_lossy();
        let endings = [".safetensors", ".safetensors.index.json", ".distcp"];
        if name != ".metadata" && !endings.iter().any(|ending| name.ends_with(ending)) {
            return Ok(Some(name.into_owned()));
        }
    }
    Ok(None)
}

impl Drop for StagedOutput {
    fn drop(&mut self) {
        // After a rename the path does not exist. A path that cannot be removed is recognisable by its `.tmp-` name.
        let _ = match fs::symlink_metadata(&self.path) {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(&self.path),
            Ok(_) => fs::remove_file(&self.path),
            Err(_) => Ok(()),
        };
    }
}

/// Creates a file; fails if it exists.
pub(crate) fn new_file(path: &Path) -> Result<File, ExchangeError> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    file.map_err(ExchangeError::io("create", path))
}

/// Writes a new file and flushes it.
pub(crate) fn whole_file(path: &Path, bytes: &[u8]) -> Result<(), ExchangeError> {
    let mut file = new_file(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(ExchangeError::io("write", path))
}

/// Syncs a directory, so that renames in it survive a crash.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), ExchangeError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(ExchangeError::io("sync", dir))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Returns the error for an unexpected end of file.
pub(crate) fn too_short() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_out_of_its_folder() {
        let dir = Path::new("/data");
        for bad in ["", "/etc/passwd", "../x", "a/../../x", ".", "a\0b"] {
            assert_eq!(below(dir, bad), None, "{bad:?}");
        }
        assert_eq!(below(dir, "__0_0.distcp"), Some(dir.join("__0_0.distcp")));
        assert_eq!(below(dir, "a/b"), Some(dir.join("a/b")));
    }

    #[test]
    fn a_draft_that_is_not_put_leaves_nothing_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().expect("a folder");
        let target = dir.path().join("out");
        let draft = StagedOutput::of(&target, false).expect("free");
        new_file(&draft.path).expect("created");
        let late = StagedOutput::of(&target, false).expect("still free");
        new_file(&late.path).expect("created");
        draft.put().expect("put");
        assert!(matches!(late.put(), Err(ExchangeError::AlreadyThere { .. })));
        assert!(matches!(
            StagedOutput::of(&target, false),
            Err(ExchangeError::AlreadyThere { .. })
        ));
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }
}
