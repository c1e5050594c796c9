//! Words of `rankguard bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::FormatArgs;

/// `bench`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// What to measure; all that there is when nothing is named
    #[command(subcommand)]
    pub(crate) what: Option<BenchAction>,
}

/// `bench ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum BenchAction {
    /// Search a log with every signature, and have grep and ripgrep do the same
    Match(BenchMatchArgs),
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
