//! The one door to the disk: every system call of a store goes through here, so that faults can be put there.
//!
//! In production nobody has put any, and a call costs one load of a word more. Who tortures a store puts in a
//! [`Faults`], which is asked before every call and may refuse it, cut it short, or have it done and reported as failed.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::io::Errno;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A new file.
    Create,
    /// A file that is there, to read or to mend it.
    Open,
    /// Room for a file.
    Allocate,
    /// Bytes into a file.
    Write,
    /// The length of a file.
    Cut,
    /// A file made to last.
    Sync,
    /// The names in a folder made to last.
    SyncDir,
    /// Another name instead of the one it has.
    Rename,
    /// A second name.
    Link,
    /// A name goes.
    Remove,
    /// A folder goes.
    RemoveDir,
    /// A new folder.
    MakeDir,
    /// The names in a folder.
    List,
    /// Bytes out of a file.
    Read,
    /// Whether something is there, and what.
    Stat,
}

/// What happens to a call instead of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// It fails and nothing is done.
    Refuse(Errno),
    /// So many bytes are written, and then it fails. Any other call is refused.
    Part(u64, Errno),
    /// So many bytes are written, and it says so. Any other call is done as asked.
    Short(u64),
    /// It is done, and fails all the same.
    After(Errno),
}

/// Decides what happens to calls, on whatever thread they are made.
pub trait Faults: Sync {
    /// What is to happen to a call on `path` that transfers `bytes` bytes; `None` for what was asked.
    fn strike(&self, op: Op, path: &Path, bytes: u64) -> Option<Strike>;
}

static FAULTS: OnceLock<&'static dyn Faults> = OnceLock::new();

/// From now on every store of this process asks `faults`. The first to come stays.
pub fn install(faults: &'static dyn Faults) {
    let _ = FAULTS.set(faults);
}

fn strike(op: Op, path: &Path, bytes: u64) -> Option<Strike> {
    FAULTS.get()?.strike(op, path, bytes)
}

/// Does `call`, or what is to happen instead.
pub(crate) fn call<T>(op: Op, path: &Path, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match strike(op, path, 0) {
        None | Some(Strike::Short(_)) => call(),
        Some(Strike::Refuse(errno) | Strike::Part(_, errno)) => Err(errno.into()),
        Some(Strike::After(errno)) => {
            call()?;
            Err(errno.into())
        }
    }
}

/// Does `write`, which is given how many bytes to write and says how many it wrote, for up to `bytes` bytes; a part is a
/// multiple of `unit`.
pub(crate) fn write(
    path: &Path,
    bytes: usize,
    unit: usize,
    write: impl FnOnce(usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let whole = |part: u64| part.min(bytes as u64) as usize / unit * unit;
    match strike(Op::Write, path, bytes as u64) {
        None => write(bytes),
        Some(Strike::Refuse(errno)) => Err(errno.into()),
        Some(Strike::Part(part, errno)) => {
            if whole(part) > 0 {
                write(whole(part))?;
            }
            Err(errno.into())
        }
        // A write that takes nothing at all is an error of its own, and no short one.
        Some(Strike::Short(part)) => write(whole(part).max(unit.min(bytes))),
        Some(Strike::After(errno)) => {
            write(bytes)?;
            Err(errno.into())
        }
    }
}
