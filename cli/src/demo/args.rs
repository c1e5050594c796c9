//! Words of `rankguard demo`.

use std::path::PathBuf;

use clap::Args;

use crate::args::Format;

/// `demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// How to print the result
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,
    /// Instead of the four stories, kill random processes (controller included) at random moments
    #[arg(long, value_name = "SEED")]
    pub(crate) chaos: Option<u64>,
    /// Folder of report.html and report.json [default: rankguard-demo]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Keep logs, journal and checkpoints
    #[arg(long)]
    pub(crate) keep: bool,
    /// Do not tell the story while it happens
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
