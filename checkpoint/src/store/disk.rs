//! Wrapper of all system calls of a store, as the injection point for disk faults.
//!
//! Without injection a call costs one additional load of a word. A torture test installs a [`FaultSource`], which is
//! consulted before every call and may refuse it, shorten it, or let it run and report failure.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::io::Errno;

/// Kind of system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileOperation {
    /// Creates a new file.
    Create,
    /// Opens an existing file, to read or repair it.
    Open,
    /// Allocates space for a file.
    Allocate,
    /// Writes to a file.
    Write,
    /// Sets the length of a file.
    Cut,
    /// Syncs a file to disk.
    Sync,
    /// Syncs the names in a directory to disk.
    SyncDir,
    /// Renames a file, possibly over another.
    Rename,
    /// Creates a hard link.
    Link,
    /// Removes a file name.
    Remove,
    /// Removes an empty directory.
    RemoveDir,
    /// Creates a new directory.
    MakeDir,
    /// Lists the names in a directory.
    List,
    /// Reads from a file.
    Read,
    /// Queries existence and type of a file.
    Stat,
}

/// Injected fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The call fails without effect.
    Refuse(Errno),
    /// The given number of bytes is written, then the call fails. Calls other than writes are refused.
    Part(u64, Errno),
    /// The given number of bytes is written and reported. Calls other than writes run normally.
    Short(u64),
    /// The call runs, but reports failure.
    After(Errno),
}

/// Source of injected faults; called from any thread.
pub trait FaultSource: Sync {
    /// Returns the fault for a call on `path` that transfers `bytes` bytes; `None` for a normal call.
    fn fault_for(&self, op: FileOperation, path: &Path, bytes: u64) -> Option<CallFault>;
}

static FAULTS: OnceLock<&'static dyn FaultSource> = OnceLock::new();

/// Installs the faults for every store of this process. Later calls are ignored.
pub fn install(faults: &'static dyn FaultSource) {
    let _ = FAULTS.set(faults);
}

fn injected_fault(op: FileOperation, path: &Path, bytes: u64) -> Option<CallFault> {
    FAULTS.get()?.fault_for(op, path, bytes)
}

/// Runs `call`, or injects a fault.
pub(crate) fn call<T>(op: FileOperation, path: &Path, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match injected_fault(op, path, 0) {
        None | Some(CallFault::Short(_)) => call(),
        Some(CallFault::Refuse(errno) | CallFault::Part(_, errno)) => Err(errno.into()),
        Some(CallFault::After(errno)) => {
            call()?;
            Err(errno.into())
        }
    }
}

/// Runs `write` for up to `bytes` bytes, or injects a fault. `write` takes the number of bytes to write and returns the
/// number written; a part is a multiple of `unit`.
pub(crate) fn write(
    path: &Path,
    bytes: usize,
    unit: usize,
    write: impl FnOnce(usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let whole = |part: u64| part.min(bytes as u64) as usize / unit * unit;
    match injected_fault(FileOperation::Write, path, bytes as u64) {
        None => write(bytes),
        Some(CallFault::Refuse(errno)) => Err(errno.into()),
        Some(CallFault::Part(part, errno)) => {
            if whole(part) > 0 {
                write(whole(part))?;
            }
            Err(errno.into())
        }
        // A write of zero bytes would be an error instead of a short write.
        Some(CallFault::Short(part)) => write(whole(part).max(unit.min(bytes))),
        Some(CallFault::After(errno)) => {
            write(bytes)?;
            Err(errno.into())
        }
    }
}
