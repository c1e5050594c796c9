//! Exit codes of the programs.

use std::process::ExitCode;

/// Exit codes, the same for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and nothing wrong was found.
    Fine,
    /// 1: done, and something wrong was found (a case, a damaged checkpoint, a mistake in a file).
    Finding,
    /// 2: the command could not do its work.
    Failure,
    /// 3: the followed job failed.
    JobFailed,
    /// 4: the followed job was cancelled.
    JobCancelled,
    /// 64: a usage mistake on the command line or in the configuration.
    Usage,
    /// 69: no controller answers, as `EX_UNAVAILABLE` of sysexits.h.
    NoController,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Finding => 1,
            Exit::Failure => 2,
            Exit::JobFailed => 3,
            Exit::JobCancelled => 4,
            Exit::Usage => 64,
            Exit::NoController => 69,
        })
    }
}
