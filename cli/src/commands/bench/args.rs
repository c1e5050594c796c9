//! Words of `rankguard bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::FormatArgs;
use crate::commands::history::HistoryArgs;

/// `bench`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) what: BenchAction,
}

/// `bench ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum BenchAction {
    /// Search a log with every signature, and have grep and ripgrep do the same
    Match(BenchMatchArgs),
    /// Save and load a training state, and copy, write and read the same bytes plainly
    Checkpoint(BenchCheckpointArgs),
    /// Feed made-up history through the brain, and have pandas do the same
    #[command(disable_help_flag = true)]
    Replay(HistoryArgs),
    /// Run an agent on a made-up node of 8 GPUs, 8 adapters and 64 ranks: what it costs, how soon it sees
    Agent(BenchAgentArgs),
    /// One rank of `bench checkpoint`
    #[command(hide = true)]
    CheckpointRank(BenchRankArgs),
}

/// `bench agent`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchAgentArgs {
    /// How long to measure, after the start
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=3600))]
    pub(crate) seconds: u32,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// `bench checkpoint`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchCheckpointArgs {
    /// Size of the whole training state; 2 is what other programs are compared at
    #[arg(long, value_name = "GIB", default_value_t = 0.5, value_parser = gib)]
    pub(crate) gib: f64,
    /// Ranks that save, each a process
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: u32,
    /// Rounds that count, after one that does not
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = count)]
    pub(crate) rounds: usize,
    /// Saves in all; memory is told after the first and the last
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = count)]
    pub(crate) saves: usize,
    /// Memory of each rank in the rows of saves that stream through a window
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub(crate) window: u64,
    /// Where the store is made, on the disk that is to be measured; the folder for temporary files if absent
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// `bench checkpoint-rank`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchRankArgs {
    /// Which one
    #[arg(long)]
    pub(crate) rank: u32,
    /// Of how many
    #[arg(long)]
    pub(crate) world: u32,
    /// Size of the whole state
    #[arg(long, value_parser = gib)]
    pub(crate) gib: f64,
    /// Copying threads
    #[arg(long)]
    pub(crate) threads: usize,
    /// Arenas of all ranks
    #[arg(long = "arena")]
    pub(crate) arenas: Vec<PathBuf>,
}

fn gib(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(gib) if (0.1..=1024.0).contains(&gib) => Ok(gib),
        _ => Err("give a number of GiB from 0.1 to 1024".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds) if (1..=1000).contains(&rounds) => Ok(rounds),
        _ => Err("give a number from 1 to 1000".to_owned()),
    }
}

/// `bench match`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchMatchArgs {
    /// Plain logs, as one; a healthy one is made where none is named
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Size of the log that is made
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mib: u32,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
