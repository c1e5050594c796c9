//! `rankguard checkpoint ...`: a store on disk, without a controller. One file a family of actions.

mod args;
mod look;
mod repair;
mod scrub;
mod torture;

pub(crate) use args::CheckpointArgs;
use args::{CheckpointAction, StoreArgs};
use rankguard_model::Step;

use crate::error::CliError;
use crate::exit::Exit;

pub(super) fn run(args: CheckpointArgs) -> Result<Exit, CliError> {
    match args.action {
        CheckpointAction::Ls(store) => look::ls(&store),
        CheckpointAction::Verify { store, step } => look::check(&store, step.map(Step)),
        CheckpointAction::Scrub(args) => scrub::run(&args),
        CheckpointAction::Repair(args) => repair::run(&args),
        CheckpointAction::Torture(args) => torture::run(&args),
        CheckpointAction::TortureHand { errand } => torture::hand(&errand),
        CheckpointAction::Explain { store, step } => look::explain(&store, Step(step)),
    }
}
