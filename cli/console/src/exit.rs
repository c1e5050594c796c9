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
    /// It was asked for something that does not exist, on the command line or in the configuration: 64.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Finding => 1,
            Exit::Failure => 2,
            Exit::Usage => 64,
        })
    }
}
