//! `rankguard keep-arenas`: helper process that holds the arenas of a killed agent for its successor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::error::CliError;
use crate::exit::CommandExit;

/// Options of `keep-arenas`.
#[derive(Debug, Clone, Parser)]
#[command(name = "rankguard keep-arenas")]
pub(crate) struct KeepArenasArgs {
    /// State directory of the agent; standard input is the socket to the agent
    state_dir: PathBuf,
    /// Maximum time without an agent, in milliseconds
    kept_ms: u64,
}

/// Parses the options of this command if it is the one on the command line. The process waits next to an agent and must
/// be small.
pub(crate) fn parse_args() -> Option<Result<KeepArenasArgs, clap::Error>> {
    let mut words = std::env::args_os().skip(1);
    let is_asked_for = words.next().is_some_and(|word| word == "keep-arenas");
    is_asked_for
        .then(|| KeepArenasArgs::try_parse_from(std::iter::once(OsString::from("rankguard keep-arenas")).chain(words)))
}

pub(crate) fn run(args: &KeepArenasArgs) -> Result<CommandExit, CliError> {
    rankguard_agent::keep_arenas(&args.state_dir, Duration::from_millis(args.kept_ms)).map_err(|problem| {
        CliError::failure(
            "cannot hold the arenas of an agent",
            "this command is started by `rankguard agent` only",
        )
        .because(problem)
    })?;
    Ok(CommandExit::Fine)
}
