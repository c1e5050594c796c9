//! `rankguard bench`: performance of this program on this machine, next to the machine's limits and other tools. One
//! file per subject.

mod agent;
mod args;
mod checkpoint;
mod matching;

pub(crate) use args::BenchArgs;
use args::{BenchAction, BenchAgentArgs, BenchCheckpointArgs, BenchMatchArgs, BenchRankArgs};

use crate::error::CliError;
use crate::exit::CommandExit;

pub(crate) fn run(args: &BenchArgs) -> Result<CommandExit, CliError> {
    match &args.what {
        BenchAction::Match(args) => matching::run(args),
        BenchAction::Agent(args) => agent::run(args),
        BenchAction::Checkpoint(args) => checkpoint::run(args),
        BenchAction::Replay(args) => {
            let mut words = vec!["replay".into()];
            words.extend(args.words.iter().cloned());
            Err(super::history::exec_history("bench", words))
        }
        BenchAction::CheckpointRank(args) => checkpoint::run_one_rank(args),
    }
}
