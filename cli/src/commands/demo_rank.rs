//! `rankguard demo-rank`: one rank of the demo's job. Its output and exit codes are those of a training program.

use std::path::PathBuf;

use clap::Args;
use rankguard_trainer::TrainingSettings;

use crate::exit::CommandExit;
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct DemoRankArgs {
    /// Number of passes over the data
    #[arg(long)]
    pub(crate) epochs: Option<u64>,
    /// Samples per step, over all ranks
    #[arg(long)]
    pub(crate) batch: Option<usize>,
    /// Widths of the hidden layers
    #[arg(long, value_name = "WIDTHS", value_delimiter = ',')]
    pub(crate) hidden: Option<Vec<usize>>,
    /// Random seed of initial weights and sample order
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Minimum duration of a step, milliseconds
    #[arg(long)]
    pub(crate) step_ms_min: Option<u64>,
    /// Directory of the results
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Step at which a planted bug occurs
    #[arg(long)]
    pub(crate) bug_at_step: Option<u64>,
    /// Rank with the planted bug
    #[arg(long)]
    pub(crate) bug_rank: Option<u32>,
}

pub(crate) fn run(args: DemoRankArgs) -> CommandExit {
    let defaults = TrainingSettings::default();
    let settings = TrainingSettings {
        epochs: args.epochs.unwrap_or(defaults.epochs),
        batch: args.batch.unwrap_or(defaults.batch),
        hidden: args.hidden.unwrap_or(defaults.hidden.clone()),
        seed: args.seed.unwrap_or(defaults.seed),
        step_ms_min: args.step_ms_min.unwrap_or(defaults.step_ms_min),
        out: args.out.unwrap_or(defaults.out.clone()),
        bug_at_step: args.bug_at_step,
        bug_rank: args.bug_rank.unwrap_or(defaults.bug_rank),
        ..defaults
    };
    match rankguard_trainer::run(settings) {
        Ok(_) => CommandExit::Fine,
        Err(error) => {
            // The report of a failed training program, for collectors and people; exit code 1 as Python.
            out::notes(error.report().trim_end());
            CommandExit::Finding
        }
    }
}
