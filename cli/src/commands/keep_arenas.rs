//! `rankguard keep-arenas`: the process that holds the arenas of an agent which is killed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::error::CliError;
use crate::exit::Exit;

/// `keep-arenas`.
#[derive(Debug, Clone, Parser)]
#[command(name = "rankguard keep-arenas")]
pub(crate) struct KeepArenasArgs {
    /// The agent's directory; the socket that leads to it is standard input
    state_dir: PathBuf,
    /// How long it waits for an agent
    kept_ms: u64,
}

/// The words of this command, where it is the one that was typed: it waits beside an agent and must be small.
pub(crate) fn asked_for() -> Option<Result<KeepArenasArgs, clap::Error>> {
    let mut words = std::env::args_os().skip(1);
    let is_asked_for = words.next().is_some_and(|word| word == "keep-arenas");
    is_asked_for
        .then(|| KeepArenasArgs::try_parse_from(std::iter::once(OsString::from("rankguard keep-arenas")).chain(words)))
}

pub(crate) fn run(args: &KeepArenasArgs) -> Result<Exit, CliError> {
    rankguard_agent::keep_arenas(&args.state_dir, Duration::from_millis(args.kept_ms)).map_err(|problem| {
        CliError::failure(
            "cannot keep the arenas of an agent",
            "`rankguard agent` starts this; there is no use for it by hand",
        )
        .because(problem)
    })?;
    Ok(Exit::Fine)
}
