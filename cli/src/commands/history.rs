//! `dataset`, `study`, `replay`, `simulate`: handed to the program of the history commands, which lies beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use rankguard_console::error::CliError;

/// Words for the program of the history commands, help included.
#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct HistoryArgs {
    /// Its words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    pub(crate) words: Vec<OsString>,
}

/// Name of that program.
const PROGRAM: &str = "rankguard-history";

fn program() -> PathBuf {
    let beside = std::env::current_exe().map(|path| path.with_file_name(PROGRAM));
    beside.unwrap_or_else(|_| PROGRAM.into())
}

/// Has that program write the manual pages of its commands. Returns whether it is there.
pub(crate) fn write_man_pages(folder: &Path) -> std::io::Result<bool> {
    match Command::new(program()).arg("man-pages").arg(folder).status() {
        Ok(status) if status.success() => Ok(true),
        Ok(status) => Err(std::io::Error::other(format!("{PROGRAM} ended with {status}"))),
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// Returns the history program's part of the command reference; `None` if it is not installed.
pub(crate) fn command_reference() -> std::io::Result<Option<String>> {
    match Command::new(program()).arg("markdown").output() {
        Ok(ran) if ran.status.success() => String::from_utf8(ran.stdout).map(Some).map_err(std::io::Error::other),
        Ok(ran) => Err(std::io::Error::other(format!("{PROGRAM} ended with {}", ran.status))),
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Becomes that program. Comes back only when that cannot be done.
pub(crate) fn become_it(command: &str, words: Vec<OsString>) -> CliError {
    let program = program();
    let problem = Command::new(&program).arg(command).args(words).exec();
    CliError::failure(
        format!("`rankguard {command}` needs {}", program.display()),
        format!("`cargo build --release -p {PROGRAM}` builds it beside this program"),
    )
    .because(problem)
}
