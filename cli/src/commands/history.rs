//! `dataset`, `study`, `replay`, `simulate`: handed to the program of the history commands, which lies beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rankguard_console::error::CliError;

/// Name of that program.
const PROGRAM: &str = "rankguard-history";

/// Becomes that program. Comes back only when that cannot be done.
pub(super) fn become_it(command: &str, words: Vec<OsString>) -> CliError {
    let beside = std::env::current_exe().map(|path| path.with_file_name(PROGRAM));
    let program = beside.unwrap_or_else(|_| PROGRAM.into());
    let problem = Command::new(&program).arg(command).args(words).exec();
    CliError::failure(
        format!("`rankguard {command}` needs {}", program.display()),
        format!("`cargo build --release -p {PROGRAM}` builds it beside this program"),
    )
    .because(problem)
}
