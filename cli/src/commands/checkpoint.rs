//! `rankguard checkpoint ...`: works on a store on disk, without a controller unless one is given. One file per family
//! of actions.

mod args;
mod diff;
mod export;
mod folder;
mod gc;
mod import;
mod inspect;
mod memory;
mod parity;
mod pick;
mod plan;
mod pull;
mod push;
mod remote;
mod repair;
mod rows;
mod scrub;
mod show;
mod torture;
mod uploads;
mod url;

pub(crate) use args::CheckpointArgs;
use args::{CheckpointAction, StoreArgs};
use rankguard_model::Step;

use crate::args::CommonArgs;
use crate::error::CliError;
use crate::exit::CommandExit;

pub(crate) fn run(args: CheckpointArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match args.action {
        CheckpointAction::Ls(store) => inspect::ls(&store),
        CheckpointAction::Verify { store, step } => inspect::check(&store, step.map(Step)),
        CheckpointAction::Push(args) => push::run(&args),
        CheckpointAction::Pull(args) => pull::run(&args),
        CheckpointAction::Parity(args) => parity::run(&args),
        CheckpointAction::Scrub(args) => scrub::run(&args),
        CheckpointAction::Repair(args) => repair::run(&args),
        CheckpointAction::Gc(args) => gc::run(&args, memory::controller_status(&args.address, common)?.as_ref()),
        CheckpointAction::Torture(args) => torture::run(&args),
        CheckpointAction::TortureHand { errand } => torture::run_victim(&errand),
        CheckpointAction::Explain { store, step, address } => inspect::explain(
            &store,
            Step(step),
            memory::controller_status(&address, common)?.as_ref(),
        ),
        CheckpointAction::Plan(args) => plan::run(&args),
        CheckpointAction::Show(args) => show::run(&args),
        CheckpointAction::Diff(args) => diff::run(&args),
        CheckpointAction::Export(args) => export::run(&args),
        CheckpointAction::Import(args) => import::run(&args),
    }
}
