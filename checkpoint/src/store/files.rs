//! Atomic files: a file appears complete under its final name or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use rustix::io::Errno;

use crate::image::MappedImage;
use crate::store::StoreError;
use crate::store::direct;
use crate::store::disk::{self, FileOperation};
use crate::store::modes::{inherit_owner, share_dir, share_file};
use crate::store::temp_lock::{self, TempOwner};

/// Buffer size of a file copy, bytes.
const COPY_BYTES: usize = 4 << 20;

/// Name prefix of temporary files.
pub(super) const TEMP_PREFIX: &str = ".tmp-";

/// Result of giving a file its final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenameResult {
    Written,
    AlreadyThere,
}

/// File under a temporary name; removed if dropped before it is renamed.
pub(super) struct TempFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
    bytes: u64,
    /// True if transfers bypass the page cache and must therefore be whole sectors.
    direct: bool,
}

impl TempFile {
    /// Creates a temporary file for `<dir>/<name>` with `bytes` bytes. Allocates all space now if the filesystem
    /// supports it, so that a full disk is detected before the work.
    pub(super) fn start(dir: &Path, name: &str, bytes: u64) -> Result<Self, StoreError> {
        Self::begin(dir, name, bytes, false)
    }

    /// Creates a temporary file for direct transfers if the filesystem supports them.
    pub(super) fn start_direct(dir: &Path, name: &str, bytes: u64) -> Result<Self, StoreError> {
        Self::begin(dir, name, bytes, true)
    }

    fn begin(dir: &Path, name: &str, bytes: u64, direct: bool) -> Result<Self, StoreError> {
        let (file, direct, path) = create(dir, name, direct)?;
        let temp = Self {
            file,
            target: dir.join(name),
            path,
            bytes,
            direct,
        };
        if bytes > 0 {
            let room = || Ok(fallocate(&temp.file, FallocateFlags::empty(), 0, bytes)?);
            if let Err(error) = disk::call(FileOperation::Allocate, &temp.path, room)
                && !matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::NOSYS))
            {
                return Err(temp.failed("allocate", error));
            }
        }
        Ok(temp)
    }

    /// Appends bytes to the file.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let written = write_all(&self.path, bytes, |part| self.file.write(part));
        written.map_err(|error| self.failed("write", error))
    }

    /// Writes the image bytes from `at` to `end` to the same offsets, directly from mapped memory.
    pub(super) fn write_mapped(&mut self, image: MappedImage<'_>, at: u64, end: u64) -> Result<(), StoreError> {
        let write = |at, length| image.write_to(&self.file, at, length);
        direct::write_all(&self.path, &self.file, &mut self.direct, at..end, write)
            .map_err(|error| self.failed("write", error))
    }

    /// Writes the first `length` bytes of `bytes` at `at`, a multiple of the sector size. `bytes` must be
    /// sector-aligned; its content after `length`, up to a whole sector, may be written too.
    pub(super) fn write_block(&mut self, at: u64, bytes: &[u8], length: usize) -> Result<(), StoreError> {
        let write = |place: u64, length: usize| {
            let from = (place - at) as usize;
            FileExt::write_at(&self.file, &bytes[from..from + length], place)
        };
        let range = at..at + length as u64;
        direct::write_all(&self.path, &self.file, &mut self.direct, range, write)
            .map_err(|error| self.failed("write", error))
    }

    /// Truncates the file to its length, which removes the padding of whole-sector writes.
    pub(super) fn cut(&self) -> Result<(), StoreError> {
        disk::call(FileOperation::Cut, &self.path, || self.file.set_len(self.bytes))
            .map_err(|error| self.failed("cut", error))
    }

    /// Syncs the file and renames it to its final name, unless that exists.
    pub(super) fn put(self) -> Result<RenameResult, StoreError> {
        self.sync()?;
        let rename = || {
            Ok(renameat_with(
                CWD,
                &self.path,
                CWD,
                &self.target,
                RenameFlags::NOREPLACE,
            )?)
        };
        let put = match disk::call(FileOperation::Rename, &self.path, rename) {
            Ok(()) => {
                // Readers lock the file under its final name from now on.
                temp_lock::unlock(&self.file);
                RenameResult::Written
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::EXIST) => RenameResult::AlreadyThere,
                Some(Errno::INVAL | Errno::NOSYS) => self.put_by_link()?,
                _ => return Err(self.failed("rename", error)),
            },
        };
        sync_dir(parent(&self.target))?;
        Ok(put)
    }

    /// Syncs the file and renames it over an existing one. Only for a repair that found the existing file to differ
    /// from the committed one.
    pub(super) fn put_over(self) -> Result<(), StoreError> {
        self.sync()?;
        let rename = || fs::rename(&self.path, &self.target);
        disk::call(FileOperation::Rename, &self.path, rename).map_err(|error| self.failed("rename", error))?;
        temp_lock::unlock(&self.file);
        sync_dir(parent(&self.target))
    }

    fn sync(&self) -> Result<(), StoreError> {
        disk::call(FileOperation::Sync, &self.path, || self.file.sync_all()).map_err(|error| self.failed("sync", error))
    }

    /// Fallback for filesystems without rename-noreplace (NFS): creates a hard link; the temporary name is removed on
    /// drop.
    fn put_by_link(&self) -> Result<RenameResult, StoreError> {
        match disk::call(FileOperation::Link, &self.path, || {
            fs::hard_link(&self.path, &self.target)
        }) {
            Ok(()) => {
                temp_lock::unlock(&self.file);
                Ok(RenameResult::Written)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(RenameResult::AlreadyThere),
            Err(error) => Err(self.failed("link", error)),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn failed(&self, what: &'static str, error: io::Error) -> StoreError {
        StoreError::writing(what, &self.target, self.bytes, error)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // After a successful rename this name does not exist. A file that cannot be removed is cleared by the next
        // writer of the same file, or with its folder.
        let _ = disk::call(FileOperation::Remove, &self.path, || fs::remove_file(&self.path));
    }
}

/// Creates a file with a random name, locked by this process while it is open.
fn create(dir: &Path, name: &str, direct: bool) -> Result<(File, bool, PathBuf), StoreError> {
    loop {
        let path = dir.join(format!("{TEMP_PREFIX}{name}-{}", temp_lock::random_suffix()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let opened = disk::call(FileOperation::Create, &path, || {
            if direct {
                direct::open(&mut options, &path)
            } else {
                options.open(&path).map(|file| (file, false))
            }
        });
        match opened {
            Ok((file, direct)) if temp_lock::lock_new(&file) => {
                share_file(&file);
                return Ok((file, direct, path));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StoreError::writing("create", &path, 0, error)),
        }
    }
}

/// Calls `write` until all of `bytes` is written.
fn write_all(path: &Path, mut bytes: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
    while !bytes.is_empty() {
        match disk::write(path, bytes.len(), 1, |length| write(&bytes[..length])) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a small file atomically.
pub(crate) fn put_bytes(dir: &Path, name: &str, bytes: &[u8]) -> Result<RenameResult, StoreError> {
    let mut temp = TempFile::start(dir, name, bytes.len() as u64)?;
    temp.write(bytes)?;
    temp.put()
}

/// Copies a file atomically; an existing file of that name is left unchanged.
pub(crate) fn copy_file(source: &Path, dir: &Path, name: &str) -> Result<(), StoreError> {
    let (mut file, bytes) = open(source)?;
    let mut temp = TempFile::start(dir, name, bytes)?;
    let mut block = vec![0; COPY_BYTES];
    loop {
        let read = disk::call(FileOperation::Read, source, || file.read(&mut block))
            .map_err(StoreError::io("read", source))?;
        if read == 0 {
            break;
        }
        temp.write(&block[..read])?;
    }
    temp.put().map(drop)
}

/// Writes a small file atomically over an existing one; see [`TempFile::put_over`].
pub(crate) fn put_over(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut temp = TempFile::start(parent(path), &name, bytes.len() as u64)?;
    temp.write(bytes)?;
    temp.put_over()
}

/// Writes `parts` into a file at their offsets, leaves the rest unchanged, and sets the length to `length`. A file that
/// is missing or not regular is created under a temporary name first.
pub(crate) fn repair_ranges(path: &Path, length: u64, parts: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
    let stands =
        disk::call(FileOperation::Stat, path, || fs::symlink_metadata(path)).is_ok_and(|found| found.is_file());
    let temp = if stands {
        None
    } else {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Some(TempFile::start(parent(path), &name, length)?)
    };
    let opened;
    let (file, at) = match &temp {
        Some(temp) => (&temp.file, temp.path.as_path()),
        None => {
            let open = || OpenOptions::new().write(true).open(path);
            opened = disk::call(FileOperation::Open, path, open).map_err(StoreError::io("open", path))?;
            (&opened, path)
        }
    };
    let failed = |what| move |error| StoreError::writing(what, path, length, error);
    for (place, bytes) in parts {
        let mut place = *place;
        write_all(at, bytes, |part| {
            let written = file.write_at(part, place)?;
            place += written as u64;
            Ok(written)
        })
        .map_err(failed("mend"))?;
    }
    disk::call(FileOperation::Cut, at, || file.set_len(length)).map_err(failed("cut"))?;
    disk::call(FileOperation::Sync, at, || file.sync_all()).map_err(failed("sync"))?;
    temp.map_or(Ok(()), TempFile::put_over)
}

/// Removes temporary files of `name` (of all names if `None`) that exited writers left; returns their number. A file
/// with a live writer, on any node, is not removed.
pub(super) fn clear_temps(dir: &Path, name: Option<&str>) -> Result<u64, StoreError> {
    let prefix = name.map_or_else(|| TEMP_PREFIX.to_owned(), |name| format!("{TEMP_PREFIX}{name}-"));
    let mut cleared = 0;
    for entry in names(dir)?.unwrap_or_default() {
        if !entry.starts_with(&prefix) {
            // Also remove files that a client of `file://` staged in a store that serves as a mirror.
            if name.is_none() && temp_lock::is_stale_staged(&dir.join(&entry)) {
                remove_file(&dir.join(entry))?;
                cleared += 1;
            }
            continue;
        }
        let path = dir.join(entry);
        // Locked during the removal, so that no writer starts to use it.
        if let TempOwner::None(_held) = temp_lock::owner_of(&path) {
            remove_file(&path)?;
            cleared += 1;
        }
    }
    Ok(cleared)
}

/// Removes a file; ignores a missing one.
pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    match disk::call(FileOperation::Remove, path, || fs::remove_file(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Returns the sorted names in a directory; `None` if it does not exist. Names that are not UTF-8 are skipped.
pub(super) fn names(dir: &Path) -> Result<Option<Vec<String>>, StoreError> {
    let entries = match disk::call(FileOperation::List, dir, || fs::read_dir(dir)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("list", dir)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(StoreError::io("list", dir))?.file_name();
        names.extend(name.into_string().ok());
    }
    names.sort();
    Ok(Some(names))
}

/// Opens a regular file and returns its length; anything else is refused, because a fifo would block forever.
pub(crate) fn open(path: &Path) -> Result<(File, u64), StoreError> {
    open_with(path, |path| File::open(path).map(|file| (file, false))).map(|(file, _, bytes)| (file, bytes))
}

/// Opens a regular file for direct transfers; returns true as well if the filesystem supports them.
pub(super) fn open_direct(path: &Path) -> Result<(File, bool, u64), StoreError> {
    open_with(path, |path| direct::open(OpenOptions::new().read(true), path))
}

fn open_with(path: &Path, open: impl Fn(&Path) -> io::Result<(File, bool)>) -> Result<(File, bool, u64), StoreError> {
    let found = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::Missing { path: path.to_owned() },
        _ => StoreError::io("open", path)(error),
    };
    let kind = disk::call(FileOperation::Stat, path, || fs::metadata(path)).map_err(found)?;
    if !kind.is_file() {
        return Err(StoreError::NotAFile { path: path.to_owned() });
    }
    let (file, direct) = disk::call(FileOperation::Open, path, || open(path)).map_err(found)?;
    let bytes = file.metadata().map_err(found)?.len();
    Ok((file, direct, bytes))
}

/// Reads at most `max + 1` bytes of a file, so that the parser can detect a file that is too long.
pub(crate) fn read(path: &Path, max: usize) -> Result<Vec<u8>, StoreError> {
    let (file, _) = open(path)?;
    let mut bytes = Vec::new();
    disk::call(FileOperation::Read, path, || {
        file.take(max as u64 + 1).read_to_end(&mut bytes)
    })
    .map_err(StoreError::io("read", path))?;
    Ok(bytes)
}

/// Syncs the names in a directory.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    let synced = disk::call(FileOperation::SyncDir, dir, || {
        File::open(dir).and_then(|dir| dir.sync_all())
    });
    synced.map_err(StoreError::io("sync", dir))
}

/// Creates a directory in an existing parent, and syncs its name.
pub(crate) fn ensure_dir(dir: &Path) -> Result<(), StoreError> {
    match disk::call(FileOperation::MakeDir, dir, || fs::create_dir(dir)) {
        Ok(()) => {
            share_dir(dir);
            inherit_owner(dir);
            sync_dir(parent(dir))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::writing("make directory", dir, 0, error)),
    }
}

/// Creates a directory and its parents, and syncs their names.
pub(crate) fn ensure_dir_all(dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    ensure_dir_all(parent(dir))?;
    ensure_dir(dir)
}

/// Returns the directory that contains `path`.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) => Path::new("."),
        None => Path::new("/"),
    }
}
