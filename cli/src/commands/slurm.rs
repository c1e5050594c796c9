//! `rankguard slurm sync|prolog|exclude`.

mod exclude;
mod prolog;
mod sync;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use rankguard_model::NodeView;
use rankguard_slurm::{ControllerNode, NameMap, Scontrol, ScontrolError};

use super::scheduler_sides::read_names;
use crate::args::CommonArgs;
use crate::error::CliError;
use crate::exit::CommandExit;
use exclude::ExcludeArgs;
use prolog::PrologArgs;
use sync::SyncArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    pub(crate) action: SlurmAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SlurmAction {
    /// Keep node states equal: drain in Slurm what is cordoned here, cordon here what is drained in Slurm
    Sync(SyncArgs),
    /// Check this node before a job starts (Prolog, Epilog, HealthCheckProgram); exit code 1: unfit
    Prolog(PrologArgs),
    /// Print the nodes that Rankguard does not use as a host list, for `sbatch --exclude`
    Exclude(ExcludeArgs),
}

/// Options for Slurm's side.
#[derive(Debug, Clone, Args)]
pub(crate) struct ScontrolArgs {
    /// Program scontrol of Slurm
    #[arg(long, value_name = "PROGRAM", default_value = "scontrol")]
    pub(crate) scontrol: PathBuf,
    /// File with the nodes of which the names differ, one pair a line: the name in Slurm, the name in Rankguard
    #[arg(long, value_name = "FILE")]
    pub(crate) names: Option<PathBuf>,
}

impl ScontrolArgs {
    fn program(&self, limit: Duration) -> Scontrol {
        Scontrol::new(self.scontrol.clone(), limit)
    }

    fn name_map(&self) -> Result<NameMap, CliError> {
        let hint = "write one pair a line: the name in Slurm, the name in Rankguard";
        read_names(self.names.as_deref(), hint)
    }
}

/// Returns a node of the controller for the comparison.
fn controller_node(view: &NodeView) -> ControllerNode {
    ControllerNode {
        reasons: view
            .cordon
            .as_ref()
            .map_or_else(Vec::new, |cordon| cordon.reasons.clone()),
    }
}

fn scontrol_failure(problem: &ScontrolError) -> CliError {
    CliError::failure(
        problem.to_string(),
        "run it on a host with Slurm's commands; `scontrol show node` must work for this user",
    )
}

pub(crate) fn run(args: SlurmArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match args.action {
        SlurmAction::Sync(args) => sync::run(&args, common),
        SlurmAction::Prolog(args) => prolog::run(&args, common),
        SlurmAction::Exclude(args) => exclude::run(&args, common),
    }
}
