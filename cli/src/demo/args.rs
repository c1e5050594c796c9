//! Options of `rankguard demo`.

use std::path::PathBuf;

use clap::Args;

use crate::args::OutputFormat;

#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Format of the result
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: OutputFormat,
    /// Kill random processes (controller included) at random times instead of the four scenarios; takes the random seed
    #[arg(long, value_name = "SEED")]
    pub(crate) chaos: Option<u64>,
    /// Output directory for report.html and report.json [default: rankguard-demo]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Keep logs, journal and checkpoints after the demo
    #[arg(long)]
    pub(crate) keep: bool,
    /// Suppress progress messages during the demo
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
