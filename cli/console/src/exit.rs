//! How the program says with one number how it went.

use std::process::ExitCode;

/// Exit codes, the same for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked and found nothing wrong: 0.
    Fine,
    /// It did what was asked and found something wrong (a case, a damaged checkpoint, a mistake in a file): 1.
    Finding,
    /// It could not do what was asked: 2.
    Failure,
    /// The job that was followed failed: 3.
    JobFailed,
    /// The job that was followed was cancelled: 4.
    JobCancelled,
    /// It was asked for something that does not exist, on the command line or in the configuration: 64.
    Usage,
    /// No controller answers: 69, as `EX_UNAVAILABLE` of sysexits.h.
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
