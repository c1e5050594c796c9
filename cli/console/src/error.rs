//! Error of a command: a message, its causes, a hint, and the exit code.

use rankguard_model::with_causes;
use std::error::Error;
use std::fmt;

use crate::exit::CommandExit;

/// Failure of a command, with the lines to print and the exit code of the process.
#[derive(Debug)]
pub struct CliError {
    exit: CommandExit,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    hint: String,
}

impl CliError {
    /// Creates an error with [`CommandExit::Failure`]. `what` is the message without its cause; `hint` proposes the
    /// next step.
    pub fn failure(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            exit: CommandExit::Failure,
            what: what.into(),
            source: None,
            hint: hint.into(),
        }
    }

    /// Creates an error with [`CommandExit::Usage`]: a mistake in the arguments or the configuration.
    pub fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            exit: CommandExit::Usage,
            ..Self::failure(what, hint)
        }
    }

    /// Replaces the exit code.
    pub fn exiting(self, exit: CommandExit) -> Self {
        Self { exit, ..self }
    }

    /// Sets the cause, which [`lines`](Self::lines) prints after the message with its own causes. An earlier cause is
    /// replaced.
    pub fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    pub fn exit(&self) -> CommandExit {
        self.exit
    }

    /// Returns the lines for standard error: `error: ` with the message and its causes, then `hint: `. Further lines of
    /// the error are indented, so that a line end in a name cannot forge a hint.
    pub fn lines(&self) -> String {
        let error = with_causes(self).replace('\n', "\n  ");
        format!("error: {error}\nhint: {}", self.hint)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for CliError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_causes_once_each_and_ends_with_a_hint() {
        let cause = std::io::Error::other("disk on fire");
        let error = CliError::failure("cannot read x", "try y").because(cause);
        assert_eq!(error.lines(), "error: cannot read x: disk on fire\nhint: try y");
    }
}
