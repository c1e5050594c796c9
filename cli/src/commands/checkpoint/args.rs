//! Words of `rankguard checkpoint`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::plan::PlanArgs;
use crate::args::FormatArgs;

/// `checkpoint`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckpointArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) action: CheckpointAction,
}

/// `checkpoint ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum CheckpointAction {
    /// Committed checkpoints, and folders that are none
    Ls(StoreArgs),
    /// Read every byte and compare it with its digest
    Verify {
        /// Which store.
        #[command(flatten)]
        store: StoreArgs,
        /// Only this step
        #[arg(long)]
        step: Option<u64>,
    },
    /// Why a checkpoint can or cannot be used
    Explain {
        /// Its step
        step: u64,
        /// Which store.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// How often to checkpoint on which tier, with the reasoning and what else could be done
    Plan(PlanArgs),
}

/// Which store.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// The checkpoint store
    #[arg(long = "dir", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
