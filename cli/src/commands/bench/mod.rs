//! `rankguard bench`: how fast this program is on this machine, beside the machine's limits and other tools. One file a
//! subject.

mod agent;
mod args;
mod checkpoint;
mod matching;

pub(crate) use args::BenchArgs;
use args::{BenchAction, BenchAgentArgs, BenchCheckpointArgs, BenchMatchArgs, BenchRankArgs};
use clap::CommandFactory as _;

use crate::args::Cli;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;

pub(super) fn run(args: &BenchArgs) -> Result<Exit, CliError> {
    match &args.what {
        Some(BenchAction::Match(args)) => matching::run(args),
        Some(BenchAction::Agent(args)) => agent::run(args),
        Some(BenchAction::Checkpoint(args)) => checkpoint::run(args),
        Some(BenchAction::Replay(args)) => {
            let mut words = vec!["replay".into()];
            words.extend(args.words.iter().cloned());
            Err(super::history::become_it("bench", words))
        }
        Some(BenchAction::CheckpointRank(args)) => checkpoint::run_one_rank(args),
        None => {
            let mut cli = Cli::command();
            // Built, so that options of the whole program are part of it.
            cli.build();
            let help = cli
                .find_subcommand_mut("bench")
                .map(|bench| bench.render_help().to_string());
            out::text(&help.unwrap_or_default());
            Ok(Exit::Fine)
        }
    }
}
