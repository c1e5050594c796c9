//! Checks of paths: present, readable, writable, with free space.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rankguard_faults::classes;

use super::probe::{BlockingProbe, PendingCheck};
use super::{CheckVerdict, JobRequirements, PreflightCheck};
use crate::quantities::gib;

/// Part of the blocks or inodes of a file system below which saves begin to fail: the threshold of the host collector.
const LOW: f64 = 0.02;

pub(super) fn start(need: &JobRequirements) -> Vec<PendingCheck> {
    let mut pending = Vec::new();
    let mut ask = |check: &'static str, path: &Path, question: Box<dyn FnOnce() -> PreflightCheck + Send>| {
        pending.push(PendingCheck {
            probe: BlockingProbe::start(question),
            unanswered: PreflightCheck::new(check, path.display().to_string(), classes::FILESYSTEM_HANG),
            verdict: CheckVerdict::Fail,
            advice: "check the server of this file system; `stat` on the path hangs, and so would the job",
        });
    };
    for path in &need.paths {
        let own = path.clone();
        ask("path", path, Box::new(move || readable(&own)));
    }
    for path in &need.write_paths {
        let own = path.clone();
        let room = path.clone();
        let wanted = need.disk_bytes;
        ask("write-path", path, Box::new(move || writable(&own)));
        ask("disk", path, Box::new(move || has_room(&room, wanted)));
    }
    pending
}

fn readable(path: &Path) -> PreflightCheck {
    let check = PreflightCheck::new("path", path.display().to_string(), classes::PATH_NOT_FOUND);
    let read = || -> io::Result<&str> {
        if fs::metadata(path)?.is_dir() {
            if let Some(entry) = fs::read_dir(path)?.next() {
                entry?;
            }
            return Ok("readable folder");
        }
        // Without it, opening a pipe would wait for a writer.
        let mut options = OpenOptions::new();
        let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let _ = options
            .read(true)
            .custom_flags(nonblock)
            .open(path)?
            .read(&mut [0; 1])?;
        Ok("readable file")
    };
    match read() {
        Ok(found) => check.ok(found),
        Err(problem) => refused(check, path, &problem),
    }
}

/// Converts an error of the operating system to a failed check.
pub(super) fn refused(check: PreflightCheck, path: &Path, problem: &io::Error) -> PreflightCheck {
    match problem.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            let there = path.ancestors().skip(1).find(|parent| parent.exists());
            let advice = match there.filter(|there| *there != Path::new("")) {
                Some(there) => format!("{} exists; check the spelling and the mounts below it", there.display()),
                None => "check the spelling and the mounts".to_owned(),
            };
            check.bad(CheckVerdict::Fail, "does not exist", advice)
        }
        ErrorKind::PermissionDenied => check.of_class(classes::PERMISSION_DENIED).bad(
            CheckVerdict::Fail,
            "permission denied for this user",
            "change owner or mode of the path, or run the job as another user",
        ),
        ErrorKind::ReadOnlyFilesystem => check.of_class(classes::FILESYSTEM_IO_ERROR).bad(
            CheckVerdict::Fail,
            "the file system is read-only",
            "check `dmesg` for file system errors, then mount it writable",
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => check.of_class(classes::DISK_FULL).bad(
            CheckVerdict::Fail,
            problem.to_string(),
            "free space, or use a folder on another file system",
        ),
        ErrorKind::StaleNetworkFileHandle => check.of_class(classes::FILESYSTEM_IO_ERROR).bad(
            CheckVerdict::Fail,
            problem.to_string(),
            "mount the file system again",
        ),
        _ => check.of_class(classes::FILESYSTEM_IO_ERROR).bad(
            CheckVerdict::Fail,
            problem.to_string(),
            "check the kernel log",
        ),
    }
}

fn writable(path: &Path) -> PreflightCheck {
    let check = PreflightCheck::new("write-path", path.display().to_string(), classes::PERMISSION_DENIED);
    let is_folder = match fs::metadata(path) {
        Ok(found) => found.is_dir(),
        Err(problem) => return refused(check.of_class(classes::PATH_NOT_FOUND), path, &problem),
    };
    if !is_folder {
        return check.of_class(classes::PATH_NOT_FOUND).bad(
            CheckVerdict::Fail,
            "a file, not a folder",
            "name the folder that the job writes to",
        );
    }
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let file = TemporaryFile(path.join(format!(".rankguard-preflight-{}-{number}", std::process::id())));
    let write = || -> io::Result<()> {
        let mut open = File::create_new(&file.0)?;
        open.write_all(&[0; 4096])?;
        open.sync_all()
    };
    match write() {
        Ok(()) => check.ok("4 KiB written, synced and removed"),
        // The folder exists: file systems without regular files, such as procfs, report a missing file.
        Err(problem) if matches!(problem.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => check.bad(
            CheckVerdict::Fail,
            format!("cannot create files in it: {problem}"),
            "use a folder on a file system for regular files, not procfs or sysfs",
        ),
        Err(problem) => refused(check, path, &problem),
    }
}

/// File that is removed on drop.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn has_room(path: &Path, wanted: Option<u64>) -> PreflightCheck {
    let check = PreflightCheck::new("disk", path.display().to_string(), classes::DISK_FULL);
    let space = match rustix::fs::statvfs(path) {
        Ok(space) => space,
        Err(problem) => {
            return check.bad(
                CheckVerdict::Unknown,
                io::Error::from(problem).to_string(),
                "see the check of the path itself",
            );
        }
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let part = |free: u64, all: u64| if all == 0 { 1.0 } else { free as f64 / all as f64 };
    let blocks = part(space.f_bavail, space.f_blocks);
    let inodes = part(space.f_favail, space.f_files);
    let found = format!(
        "{} free ({:.0} %), {:.0} % of the inodes free",
        gib(free),
        blocks * 100.0,
        inodes * 100.0
    );
    let advice = "free space, or use a folder on another file system";
    match wanted {
        Some(wanted) if free < wanted => {
            check.bad(CheckVerdict::Fail, format!("{found}; {} required", gib(wanted)), advice)
        }
        _ if blocks < LOW || inodes < LOW => check.bad(CheckVerdict::Warn, found, advice),
        _ => check.ok(found),
    }
}
