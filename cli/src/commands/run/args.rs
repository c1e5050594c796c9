//! Options of `rankguard run`.

use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use rankguard_checkpoint::arena::MIN_WINDOW_BYTES;
use rankguard_checkpoint_tiers::object::ObjectTier;
use rankguard_model::{CheckpointParity, CheckpointTiers, CommitLevel};

use crate::args::ControllerAddress;
use crate::commands::keep::KeepArgs;
use crate::commands::run::resume::ResumeArg;
use crate::error::CliError;

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// Number of nodes: `MIN:MAX`, or one number
    #[arg(long, value_name = "MIN:MAX", default_value = "1")]
    pub(crate) nodes: NodeCount,
    /// Ranks per node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks_per_node: u32,
    /// Directory of the checkpoint store, the same path on every node
    #[arg(long, value_name = "DIR", requires = "checkpoint_every")]
    pub(crate) checkpoint_dir: Option<PathBuf>,
    /// Interval between checkpoints, in steps
    #[arg(long, value_name = "STEPS", requires = "checkpoint_dir", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) checkpoint_every: Option<u64>,
    /// Start from a checkpoint of: a job in the store (the job's own name continues its run as another attempt), a
    /// directory, or an object store's URL; uses the newest committed step, or STEP
    #[arg(long, value_name = "JOB|PATH|URL[:STEP]", requires = "checkpoint_dir")]
    pub(crate) resume_from: Option<ResumeArg>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    #[command(flatten)]
    pub(crate) copies: CopiesArgs,
    /// Name of the job [default: the program's name and a number]
    #[arg(long, value_name = "JOB")]
    pub(crate) name: Option<String>,
    /// Maximum number of restarts after failures without progress between them; then the job is stopped
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) max_restarts: u32,
    /// Additional environment variable of the ranks; may be repeated. Ranks also get PATH and VIRTUAL_ENV of this
    /// shell, unless PATH is set here
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<EnvPair>,
    /// Working directory of the ranks [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Local user that the ranks run as; the nodes must allow it (agent.job_users)
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Server of the `TCPStore` through which the ranks of torch find each other
    #[arg(long, value_name = "SERVER", value_enum, default_value_t)]
    pub(crate) store: StoreServer,
    /// Processes on each node that have started Python and imported modules and wait to become ranks at a restart, or
    /// `auto` for as many as the ranks of a node; each holds the memory of its imports. For Python scripts and modules
    #[arg(long, value_name = "N|auto", default_value = "0")]
    pub(crate) standby: StandbyCount,
    /// Python modules that standby processes import, separated by commas [default: torch, if it is installed]
    #[arg(long, value_name = "MODULES", requires = "standby")]
    pub(crate) standby_import: Option<String>,
    /// Print the output of the ranks, each line with its rank
    #[arg(long)]
    pub(crate) output: bool,
    /// Accept a launcher (torchrun, accelerate launch, mpirun ...) as the program, if it is the only rank of each node
    #[arg(long)]
    pub(crate) allow_launcher: bool,
    /// Submit the job and return without following it
    #[arg(long)]
    pub(crate) detach: bool,
    /// Program and arguments; started once per rank
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Copies of checkpoints in addition to their store.
#[derive(Debug, Clone, Args)]
pub(crate) struct CopiesArgs {
    /// Number of other nodes of the job that hold a copy of each image in memory, in other failure domains if possible
    #[arg(long, value_name = "NODES", requires = "checkpoint_dir", value_parser = clap::value_parser!(u32).range(1..=3))]
    pub(crate) checkpoint_copies: Option<u32>,
    /// Parity of the images in memory: groups of at most K nodes, M other nodes hold a parity of each, and any M of
    /// them may be lost
    #[arg(long, value_name = "K+M", requires = "checkpoint_dir", value_parser = crate::parity::parse)]
    pub(crate) checkpoint_parity: Option<CheckpointParity>,
    /// Condition for a commit: shards in the store, or also every requested copy and parity; a failed copy is reported
    /// and does not block the commit
    #[arg(long, value_name = "LEVEL", requires = "checkpoint_dir", value_enum, default_value_t)]
    pub(crate) checkpoint_commit: CommitCondition,
    /// Object store to mirror every committed checkpoint to: file, s3, gs or az; credentials come from the environment
    /// of the agents
    #[arg(long, value_name = "URL", requires = "checkpoint_dir")]
    pub(crate) checkpoint_mirror: Option<String>,
    /// Stream saves through a window of this size per rank, MiB, instead of holding whole images: a save waits for the
    /// disk, shards are written whole, and restores read the store; excludes copies and parity
    #[arg(long, value_name = "MIB", requires = "checkpoint_dir", value_parser = window,
        conflicts_with_all = ["checkpoint_copies", "checkpoint_parity"])]
    pub(crate) checkpoint_window: Option<NonZero<u64>>,
}

/// Parses a number of MiB to bytes.
fn window(text: &str) -> Result<NonZero<u64>, String> {
    let least = MIN_WINDOW_BYTES as f64 / f64::from(1 << 20);
    let mib = text.parse::<f64>().ok().filter(|mib| (least..=1e9).contains(mib));
    mib.and_then(|mib| NonZero::new((mib * f64::from(1 << 20)) as u64))
        .ok_or_else(|| format!("expected MiB, {least} or more; 64 MiB suffice for any disk"))
}

/// Server of the store at MASTER_ADDR:MASTER_PORT.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreServer {
    /// Rank 0 serves it, in torch or any other program
    #[default]
    Rank,
    /// The agent of rank 0's node serves it until the last rank there has ended; for torch (env://) only
    Agent,
}

/// Standby processes on each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandbyCount {
    /// As many as the ranks of a node.
    Auto,
    Number(u32),
}

impl FromStr for StandbyCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = text.parse().map_err(|_| "expected a number or `auto`".to_owned())?;
        Ok(Self::Number(number))
    }
}

/// Condition for a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommitCondition {
    /// Shards are in the store
    #[default]
    Durable,
    /// Copies and parity are complete, too
    Replicated,
}

impl CopiesArgs {
    /// Returns the tiers of the job; rejects an unusable mirror URL before anything is sent.
    pub(crate) fn wanted(&self) -> Result<CheckpointTiers, CliError> {
        if let Some(url) = &self.checkpoint_mirror {
            ObjectTier::check(url).map_err(|problem| {
                CliError::usage(
                    "cannot use --checkpoint-mirror",
                    "expected file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
                )
                .because(problem)
            })?;
        }
        Ok(CheckpointTiers {
            nodes: self.checkpoint_copies.unwrap_or(0),
            mirror: self.checkpoint_mirror.clone(),
            parity: self.checkpoint_parity,
            commit: match self.checkpoint_commit {
                CommitCondition::Durable => CommitLevel::Durable,
                CommitCondition::Replicated => CommitLevel::Replicated,
            },
            window: self.checkpoint_window,
        })
    }
}

/// Range of nodes, given as `MIN:MAX` or one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeCount {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl std::str::FromStr for NodeCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("{text:?} is not a number; expected MIN:MAX"))
        };
        let min = number(min)?;
        let max = number(max)?;
        if min == 0 {
            return Err("a job needs at least 1 node".to_owned());
        }
        if min > max {
            return Err(format!("the minimum {min} is above the maximum {max}"));
        }
        Ok(Self { min, max })
    }
}

/// Environment variable, given as `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvPair {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl std::str::FromStr for EnvPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() && !text.contains('\0') => Ok(Self {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("expected KEY=VALUE".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_count_is_a_range_or_one_number() {
        let bytes = |text| window(text).map(NonZero::get);
        assert_eq!((bytes("64"), bytes("0.25")), (Ok(64 << 20), Ok(256 << 10)));
        assert!(
            ["0.2", "", "64MiB", "-1", "NaN", "inf"]
                .iter()
                .all(|wrong| window(wrong).is_err())
        );
        let parse = |text: &str| text.parse::<NodeCount>();
        assert_eq!(parse("2:3"), Ok(NodeCount { min: 2, max: 3 }));
        assert_eq!(parse("4"), Ok(NodeCount { min: 4, max: 4 }));
        for wrong in ["", "0", "3:2", "a:b", "1:2:3", "-1"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
