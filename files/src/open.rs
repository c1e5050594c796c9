//! Opening of files that another program wrote: regular files only, and pipes that the user named.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use thiserror::Error;

use crate::pipe::DeadlinePipe;

/// Virtual file systems of the kernel, by the magic number of `statfs`: proc, sysfs, debugfs, tracefs. Reading their
/// files may block forever or change state: `/proc/kmsg` blocks without messages and removes those that were read.
const KERNEL_FILE_SYSTEMS: [i64; 4] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163];

/// Kind of a file that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SpecialFile {
    /// Folder, where a file was expected.
    #[error("a folder, not a file")]
    Folder,
    /// Named pipe (FIFO), where a regular file was expected.
    #[error("a pipe, not a regular file; not read")]
    Pipe,
    /// Unix domain socket.
    #[error("a socket, not a regular file; not read")]
    Socket,
    /// Character or block device.
    #[error("a device, not a regular file; not read")]
    Device,
    /// File of proc, sysfs, debugfs or tracefs.
    #[error("a file of the kernel, which may wait for ever; copy its text to a file first (`dmesg > kernel.log`)")]
    Kernel,
}

impl SpecialFile {
    /// Returns the kind of a file that is not regular; `None` for a regular file.
    pub fn of(kind: FileType) -> Option<Self> {
        if kind.is_file() {
            None
        } else if kind.is_dir() {
            Some(Self::Folder)
        } else if kind.is_fifo() {
            Some(Self::Pipe)
        } else if kind.is_socket() {
            Some(Self::Socket)
        } else {
            Some(Self::Device)
        }
    }
}

impl From<SpecialFile> for io::Error {
    fn from(special: SpecialFile) -> Self {
        Self::new(ErrorKind::InvalidInput, special)
    }
}

/// Opens a regular file for reading. Symbolic links are followed, and the open never waits (`O_NONBLOCK`). Pipes,
/// sockets, devices, folders and virtual files of the kernel give [`ErrorKind::InvalidInput`] with a [`SpecialFile`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    match open(path)? {
        (file, None) => Ok(file),
        (_, Some(special)) => Err(special.into()),
    }
}

/// Opens a path that the user named: a regular file, or a pipe; `-` is standard input, which is read as a pipe. A read
/// of a pipe fails with [`ErrorKind::TimedOut`] after `wait` without data. Other files fail as in [`open_regular`].
pub fn open_named(path: &Path, wait: Duration) -> io::Result<NamedInput> {
    if path == Path::new("-") {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        return Ok(NamedInput::pipe(DeadlinePipe::new(File::from(stdin), wait)));
    }
    if std::fs::metadata(path)?.file_type().is_fifo() {
        let file = open_without_waiting(path)?;
        return Ok(NamedInput::pipe(DeadlinePipe::new(file, wait)));
    }
    let file = open_regular(path)?;
    let bytes = file.metadata()?.len();
    Ok(NamedInput {
        reader: Box::new(file),
        bytes: Some(bytes),
    })
}

/// Opened path that the user named.
pub struct NamedInput {
    /// Reader of the unmodified bytes.
    pub reader: Box<dyn Read>,
    /// Size in bytes; `None` for a pipe and for standard input.
    pub bytes: Option<u64>,
}

impl NamedInput {
    fn pipe(pipe: DeadlinePipe) -> Self {
        Self {
            reader: Box::new(pipe),
            bytes: None,
        }
    }
}

/// Opens a file that the path names as regular. The path may name another file by the time of the open, so the open
/// file is checked again; its kind is returned if it is not regular.
fn open(path: &Path) -> io::Result<(File, Option<SpecialFile>)> {
    if let Some(special) = SpecialFile::of(std::fs::metadata(path)?.file_type()) {
        return Err(special.into());
    }
    let file = open_without_waiting(path)?;
    let metadata: Metadata = file.metadata()?;
    let special = SpecialFile::of(metadata.file_type()).or_else(|| is_of_kernel(&file).then_some(SpecialFile::Kernel));
    Ok((file, special))
}

fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn is_of_kernel(file: &File) -> bool {
    let found = rustix::fs::fstatfs(file);
    found.is_ok_and(|found| KERNEL_FILE_SYSTEMS.contains(&found.f_type))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn refusal(path: &Path) -> Option<SpecialFile> {
        let error = open_regular(path).expect_err("it is special");
        error.get_ref()?.downcast_ref().copied()
    }

    #[test]
    fn special_files_are_refused_by_name_rg_11() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).expect("bound");
        let link = dir.path().join("kmsg");
        std::os::unix::fs::symlink("/proc/self/status", &link).expect("linked");
        assert_eq!(refusal(&pipe), Some(SpecialFile::Pipe));
        assert_eq!(refusal(&socket), Some(SpecialFile::Socket));
        assert_eq!(refusal(Path::new("/dev/zero")), Some(SpecialFile::Device));
        assert_eq!(refusal(dir.path()), Some(SpecialFile::Folder));
        assert_eq!(refusal(&link), Some(SpecialFile::Kernel));
    }

    #[test]
    fn a_regular_file_is_opened() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(open_regular(file.path()).is_ok());
    }
}
