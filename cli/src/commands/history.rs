//! `dataset`, `study`, `replay`, `simulate`: forwarded to the program of the history commands, next to this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use rankguard_console::error::CliError;

/// Arguments for the program of the history commands, help included.
#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct HistoryArgs {
    /// Arguments of the command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    pub(crate) words: Vec<OsString>,
}

/// File name of the history program.
const PROGRAM: &str = "rankguard-history";

fn program() -> PathBuf {
    let beside = std::env::current_exe().map(|path| path.with_file_name(PROGRAM));
    beside.unwrap_or_else(|_| PROGRAM.into())
}

/// Runs the history program to write the manual pages of its commands. Returns false if it is not installed.
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

/// Replaces this process with the history program; returns only on failure.
pub(crate) fn exec_history(command: &str, words: Vec<OsString>) -> CliError {
    let program = program();
    let problem = Command::new(&program).arg(command).args(words).exec();
    CliError::failure(
        format!("`rankguard {command}` needs {}", program.display()),
        format!(
            "install {PROGRAM} in the folder of this program, or build it with `cargo build --release -p {PROGRAM}`"
        ),
    )
    .because(problem)
}
