//! `rankguard supervise-ranks`: the process between an agent and the ranks of one generation.

use crate::error::CliError;
use crate::exit::CommandExit;

/// Name of the command.
pub(crate) const NAME: &str = "supervise-ranks";

/// True if this command is on the command line. The process runs for every generation and must be small, so the parser
/// of all commands is not built.
pub(crate) fn is_asked_for() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().is_some_and(|word| word == NAME) && words.next().is_none()
}

pub(crate) fn run() -> Result<CommandExit, CliError> {
    rankguard_agent::supervise_ranks().map_err(|problem| {
        CliError::failure(
            "cannot supervise ranks",
            "this command is started by `rankguard agent` only",
        )
        .because(problem)
    })?;
    Ok(CommandExit::Fine)
}
