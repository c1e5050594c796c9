//! Removal notice, and the file that may give one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rankguard_faults::classes;
use rankguard_model::Timestamp;

use super::SourceResult;

/// Maximum bytes of a notice file that are read.
const FILE_MAX: u64 = 4 << 10;

/// Maximum characters of a reason from outside.
const REASON_MAX: usize = 160;

/// Notice that this machine is about to be taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemovalNotice {
    /// Cause, in words.
    pub(super) reason: String,
    /// Time at which it happens; none if unknown or past.
    pub(super) at: Option<Timestamp>,
    /// Failure class: preempted, or maintenance.
    pub(super) class: &'static str,
}

impl RemovalNotice {
    /// Returns cause and time.
    pub(super) fn describe(&self) -> String {
        match self.at {
            Some(at) => format!("{} at {at}", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// Returns one line of a text from outside without control characters, cut at [`REASON_MAX`] characters.
pub(super) fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let printable = line.chars().filter(|character| !character.is_control());
    printable.take(REASON_MAX).collect::<String>().trim().to_owned()
}

/// Opens a regular file. A pipe or a device could block the reader for good.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// Reads a notice file: its existence is the notice, and its first line the cause.
pub(super) fn file_notice(path: &Path) -> SourceResult {
    let mut text = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut text));
    match read {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(format!("{}: {problem}", path.display())),
        Ok(_) => {
            let reason = one_line(&String::from_utf8_lossy(&text));
            let reason = if reason.is_empty() {
                format!("the file {} exists", path.display())
            } else {
                reason
            };
            Ok(Some(RemovalNotice {
                reason,
                at: None,
                class: classes::PREEMPTED,
            }))
        }
    }
}
