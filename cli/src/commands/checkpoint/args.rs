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
    /// Mirror committed checkpoints to an object store; goes on where it stopped, overwrites nothing
    Push(PushArgs),
    /// Bring checkpoints back from an object store, every byte checked
    Pull(PullArgs),
    /// Put shards under parity, so that lost or damaged ones come back
    Parity(ParityArgs),
}

/// `checkpoint push`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PushArgs {
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Where to: file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix; credentials come from
    /// the environment
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// Only this step [default: every committed checkpoint that is not there]
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// Most that is sent a second, MB [default: as much as there is]
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cap: Option<u64>,
    /// Afterwards remove all but the newest N checkpoints of each job there
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
}

/// `checkpoint pull`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PullArgs {
    /// Where from, as for push
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// The checkpoint store to bring them to; made where it is absent
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// This step [default: the newest of each job]
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// Most that is read a second, MB [default: as much as there is]
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cap: Option<u64>,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// `checkpoint parity`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ParityArgs {
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Most ranks of a group
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) group_size: u32,
    /// Shards of a group that may be lost
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) parity: u32,
    /// Where parity goes; on another disk it guards against the loss of the first [default: .parity in the store]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Only this step [default: every committed checkpoint that has none]
    #[arg(long)]
    pub(crate) step: Option<u64>,
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
