//! Options of `rankguard bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::FormatArgs;
use crate::commands::history::HistoryArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum BenchAction {
    /// Search a log with every signature, and compare with grep and ripgrep
    Match(BenchMatchArgs),
    /// Save and load a training state, and compare with plain copies, writes and reads of the same bytes
    Checkpoint(BenchCheckpointArgs),
    /// Replay generated history through the controller logic, and compare with pandas
    #[command(disable_help_flag = true)]
    Replay(HistoryArgs),
    /// Run an agent on a simulated node of 8 GPUs, 8 adapters and 64 ranks: resource use and detection delay
    Agent(BenchAgentArgs),
    /// Run one rank of `bench checkpoint`
    #[command(hide = true)]
    CheckpointRank(BenchRankArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchAgentArgs {
    /// Duration of each measurement after the start, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=3600))]
    pub(crate) seconds: u32,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchCheckpointArgs {
    /// Size of the whole training state in GiB; use 2 to compare with other programs
    #[arg(long, value_name = "GIB", default_value_t = 0.5, value_parser = gib)]
    pub(crate) gib: f64,
    /// Number of ranks that save, each a process
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: u32,
    /// Number of measured rounds, after one warm-up round
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = count)]
    pub(crate) rounds: usize,
    /// Number of saves, including the rounds; memory is reported after the first and the last save before the rounds
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = count)]
    pub(crate) saves: usize,
    /// Window of each rank in the rows of streaming saves, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub(crate) window: u64,
    /// Parent directory of the store, on the disk to measure [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchRankArgs {
    /// Number of this rank
    #[arg(long)]
    pub(crate) rank: u32,
    /// Number of ranks
    #[arg(long)]
    pub(crate) world: u32,
    /// Size of the whole state in GiB
    #[arg(long, value_parser = gib)]
    pub(crate) gib: f64,
    /// Number of copying threads
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

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchMatchArgs {
    /// Plain log files, read as one log [default: a generated healthy log]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Size of the generated log in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mib: u32,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
