//! `rankguard stack-calls`: helper process of an agent that reads the Python stacks of one of its ranks.

use clap::Args;

use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct StackCallsArgs {
    /// Process id of the rank
    pub(crate) pid: u32,
}

pub(crate) fn run(args: &StackCallsArgs) -> Result<CommandExit, CliError> {
    let mut told = Vec::new();
    if let Err(why) = rankguard_agent::serve_stack_calls(args.pid, &mut told) {
        // An agent uses the last line as the reason.
        out::note(&why);
        return Ok(CommandExit::Finding);
    }
    out::bytes(&told);
    Ok(CommandExit::Fine)
}
