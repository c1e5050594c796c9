//! Exit codes of the programs.

use std::process::ExitCode;

/// Exit codes, the same for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandExit {
    /// 0: done, and nothing wrong was found.
    Fine,
    /// 1: done, and a check found something wrong (a failure in logs, a damaged checkpoint, a mistake in a file).
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

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        Self::from(match exit {
            CommandExit::Fine => 0,
            CommandExit::Finding => 1,
            CommandExit::Failure => 2,
            CommandExit::JobFailed => 3,
            CommandExit::JobCancelled => 4,
            CommandExit::Usage => 64,
            CommandExit::NoController => 69,
        })
    }
}
