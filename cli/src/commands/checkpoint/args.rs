//! Words of `rankguard checkpoint`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    /// Read all of a store at a capped rate and name what is damaged; 1 when something is
    Scrub(ScrubArgs),
    /// Write good copies from other stores over what is damaged or missing
    Repair(RepairArgs),
    /// Damage, kill and starve a checkpoint of its own, and count what goes wrong
    Torture(TortureArgs),
    /// A victim of `torture`; started by it
    #[command(hide = true)]
    TortureHand {
        /// What to do, as JSON
        errand: String,
    },
}

/// `checkpoint scrub`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ScrubArgs {
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Most that is read a second, MiB; 0 for as fast as it goes
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub(crate) rate: u64,
}

/// `checkpoint repair`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RepairArgs {
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Stores that hold copies, the nearest first; each copy is checked before it is used
    #[arg(long, value_name = "DIR", required = true, num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Only this step; brings it back whole even when nothing is left of it
    #[arg(long)]
    pub(crate) step: Option<u64>,
}

/// `checkpoint torture`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TortureArgs {
    /// Cases of each kind of damage; kills, spread over the phases of a save; and faults of a disk, spread over their kinds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) cases: u64,
    /// Same seed, same damage
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where to work; a temporary folder in it goes at the end [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
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
