//! Request pipe of a rank's flight recorder: `<prefix><rank>.pipe`, which the rank creates itself. Its watchdog reads
//! the pipe once a second; any bytes are a request, and training continues after it. Source: PyTorch,
//! `torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp`, `DumpPipe`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

/// Result of a request.
#[derive(Debug)]
pub(super) enum DumpRequestOutcome {
    /// The request is in the pipe.
    Yes,
    /// No pipe, or no reader: the rank has no process group of NCCL.
    Nobody,
    /// Any other error, such as a path that is not a pipe.
    Refused(io::Error),
}

/// Writes a request to a pipe. Never blocks, and writes only to a pipe, because the job may have chosen the path.
pub(super) fn ask(path: &Path) -> DumpRequestOutcome {
    match try_ask(path) {
        Ok(()) => DumpRequestOutcome::Yes,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => DumpRequestOutcome::Nobody,
        Err(problem) if problem.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            DumpRequestOutcome::Nobody
        }
        Err(problem) => DumpRequestOutcome::Refused(problem),
    }
}

fn try_ask(path: &Path) -> io::Result<()> {
    let is_pipe = |found: fs::Metadata| found.file_type().is_fifo();
    if !is_pipe(fs::symlink_metadata(path)?) {
        return Err(io::Error::other("it is no pipe"));
    }
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let mut pipe = File::options().write(true).custom_flags(flags).open(path)?;
    if !is_pipe(pipe.metadata()?) {
        return Err(io::Error::other("it is no pipe any more"));
    }
    match pipe.write_all(b"1") {
        // The pipe is full of requests.
        Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => Ok(()),
        written => written,
    }
}

/// True if a rank could create its pipe in a folder; a rank that cannot ends.
pub(crate) fn can_be_made(folder: &Path) -> bool {
    let probe = folder.join(format!(
        ".pipe-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let made = mknodat(CWD, &probe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    made.is_ok() && fs::remove_file(&probe).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn a_request_reaches_whoever_reads_and_waits_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r0.pipe");
        assert!(matches!(ask(&path), DumpRequestOutcome::Nobody));
        fifo(&path);
        assert!(matches!(ask(&path), DumpRequestOutcome::Nobody), "nobody reads it");
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let mut reader = File::options().read(true).custom_flags(flags).open(&path).unwrap();
        assert!(matches!(ask(&path), DumpRequestOutcome::Yes));
        let mut byte = [0; 8];
        assert_eq!(reader.read(&mut byte).unwrap(), 1);
        // A pipe takes 64 KiB at most; a full one does not block the writer.
        for _ in 0..70_000 {
            assert!(matches!(ask(&path), DumpRequestOutcome::Yes));
        }
    }

    #[test]
    fn what_is_no_pipe_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        let link = folder.path().join("l");
        fs::write(&file, "kept").unwrap();
        assert!(matches!(ask(&file), DumpRequestOutcome::Refused(_)));
        fifo(&folder.path().join("p"));
        std::os::unix::fs::symlink(folder.path().join("p"), &link).unwrap();
        assert!(matches!(ask(&link), DumpRequestOutcome::Refused(_)));
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }

    #[test]
    fn a_folder_is_tried_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        assert!(can_be_made(folder.path()));
        assert!(!can_be_made(&folder.path().join("none")));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
