//! Options of `rankguard checkpoint`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use rankguard_checkpoint_exchange::DEFAULT_FILE_BYTES;
use rankguard_model::{Generation, Step};

use super::plan::PlanArgs;
use crate::args::{ControllerAddress, DocumentFormatArgs, FormatArgs};
use crate::commands::keep::KeepArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckpointArgs {
    #[command(subcommand)]
    pub(crate) action: CheckpointAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum CheckpointAction {
    /// List committed checkpoints, incomplete folders and removed checkpoints with shared chunks
    Ls(StoreArgs),
    /// Read every byte and compare it with its digest
    Verify {
        #[command(flatten)]
        store: StoreArgs,
        /// Restrict to this step
        #[arg(long)]
        step: Option<u64>,
    },
    /// Explain why a checkpoint can or cannot be used
    Explain {
        /// Step of the checkpoint
        step: u64,
        #[command(flatten)]
        store: StoreArgs,
        /// Controller that reports the copies in memory, and which nodes may be lost
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// Plan the checkpoint interval of each tier, with the reasoning and alternatives
    Plan(PlanArgs),
    /// Show the content of a checkpoint: tensors, ranks, location of its bytes
    Show(ShowArgs),
    /// Compare two checkpoints
    Diff(DiffArgs),
    /// Export a checkpoint to a format of other programs
    Export(ExportArgs),
    /// Import a checkpoint from safetensors, or from a directory of torch.distributed.checkpoint
    Import(ImportArgs),
    /// Mirror committed checkpoints to an object store; resumes where it stopped, overwrites nothing
    Push(PushArgs),
    /// Fetch checkpoints from an object store and verify every byte
    Pull(PullArgs),
    /// Add parity to shards, so that lost or damaged ones can be restored
    Parity(ParityArgs),
    /// Read a whole store at a limited rate and list damage; exit code 1 if there is any
    Scrub(ScrubArgs),
    /// Rebuild damaged or missing parts from parity, or replace them with good copies from other stores
    Repair(RepairArgs),
    /// Remove checkpoints that no retention rule keeps; --dry-run only lists them
    Gc(GcArgs),
    /// Test a scratch checkpoint with corruption, kills and disk faults, and count failures
    Torture(TortureArgs),
    /// Run a victim process of `torture`; started by it
    #[command(hide = true)]
    TortureHand {
        /// Operation of the victim, as JSON
        errand: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArgs {
    /// Step, or STEP-gGENERATION; without a generation the newest
    #[arg(value_name = "STEP")]
    pub(crate) which: CheckpointRef,
    /// Content to list; JSON contains everything
    #[arg(long, value_enum, default_value_t = ShowContent::Tensors)]
    pub(crate) list: ShowContent,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Content that `checkpoint show` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowContent {
    /// Tensors, one line each
    Tensors,
    /// Ranks with their small state, one line each
    Ranks,
    /// Files that hold bytes of the checkpoint, one line each
    Origins,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DiffArgs {
    /// First checkpoint: STEP or STEP-gGENERATION
    #[arg(value_name = "A")]
    pub(crate) before: CheckpointRef,
    /// Second checkpoint: STEP or STEP-gGENERATION
    #[arg(value_name = "B")]
    pub(crate) after: CheckpointRef,
    /// Read changed tensors and report the size of the differences
    #[arg(long)]
    pub(crate) values: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
    /// Step, or STEP-gGENERATION; without a generation the newest
    #[arg(value_name = "STEP")]
    pub(crate) which: CheckpointRef,
    /// Directory of the checkpoint store
    #[arg(long = "dir", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Restrict to this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Format [default: by the extension of --out: .safetensors; .pt, .pth, .bin or .ckpt for torch; else safetensors]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// Target: a file for torch, a directory for dcp, NAME.safetensors or a directory for safetensors
    #[arg(long, value_name = "PATH")]
    pub(crate) out: PathBuf,
    /// Replace the target if it is a file or a directory of exported files only
    #[arg(long)]
    pub(crate) force: bool,
    /// Export only names that start with this prefix, for example `model.`
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Remove the prefix from the exported names
    #[arg(long, requires = "prefix")]
    pub(crate) strip_prefix: bool,
    /// For a directory: size in bytes above which a new file begins
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_FILE_BYTES)]
    pub(crate) file_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One file, or several with an index; tensors, with the plain state as JSON in the metadata
    Safetensors,
    /// One file for torch.load(weights_only=True), with containers and plain state
    Torch,
    /// A directory for torch.distributed.checkpoint.load
    Dcp,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportArgs {
    /// A .safetensors file, a directory of such files, or a directory of torch.distributed.checkpoint
    pub(crate) path: PathBuf,
    /// Directory of the checkpoint store
    #[arg(long = "dir", value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// Job that receives the checkpoint
    #[arg(long, value_name = "NAME")]
    pub(crate) job: String,
    /// Step of the checkpoint
    #[arg(long, value_name = "N")]
    pub(crate) step: u64,
    /// Number of ranks that the checkpoint is split for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks: u32,
    /// Generation of the checkpoint; a run resumes from the greatest
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) generation: u64,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Checkpoint reference: STEP or STEP-gGENERATION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointRef {
    pub(crate) step: Step,
    pub(crate) generation: Option<Generation>,
}

impl FromStr for CheckpointRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.parse::<u64>()
                .map_err(|_| "expected STEP or STEP-gGENERATION".to_owned())
        };
        let (step, generation) = match text.split_once("-g") {
            Some((step, generation)) => (step, Some(Generation(number(generation)?))),
            None => (text, None),
        };
        Ok(Self {
            step: Step(number(step)?),
            generation,
        })
    }
}

impl fmt::Display for CheckpointRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        match self.generation {
            Some(generation) => write!(f, "-g{}", generation.0),
            None => Ok(()),
        }
    }
}

/// Options that select a store and a job.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// Directory of the checkpoint store; `ls` and `verify` also accept the URL of an object store, as for push
    #[arg(long = "dir", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Restrict to this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PushArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Target: file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix; credentials come from
    /// the environment
    ///
    /// The bucket must exist. The environment of the sending process (the agents, for `rankguard run
    /// --checkpoint-mirror`) sets the rest, unless the machine has an identity of its own at the provider:
    ///
    /// S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION; for other servers than Amazon's
    /// AWS_ENDPOINT=https://host:port, and AWS_ALLOW_HTTP=true for http.
    ///
    /// Google: GOOGLE_SERVICE_ACCOUNT=/path/key.json, or GOOGLE_SERVICE_ACCOUNT_KEY with its content; for another
    /// server "gcs_base_url" in that file.
    ///
    /// Azure: AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_KEY); for another server
    /// AZURE_STORAGE_ENDPOINT, or AZURE_STORAGE_USE_EMULATOR=true with AZURITE_BLOB_STORAGE_URL.
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// Restrict to this step [default: every committed checkpoint that the target lacks]
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// Bandwidth limit, MB/s [default: unlimited]
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cap: Option<u64>,
    /// Afterwards remove all but the newest N checkpoints of each job from the target
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PullArgs {
    /// URL of the object store, as for push
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// Directory of the target store; created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Restrict to this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Step to fetch [default: the newest of each job]
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// Bandwidth limit, MB/s [default: unlimited]
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cap: Option<u64>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ParityArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Maximum number of ranks in a group
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) group_size: u32,
    /// Number of shards of a group that may be lost
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) parity: u32,
    /// Directory for parity; another disk protects against loss of the first [default: .parity in the store]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Restrict to this step [default: every committed checkpoint without parity]
    #[arg(long)]
    pub(crate) step: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ScrubArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Read rate limit, MiB/s; 0 for unlimited
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub(crate) rate: u64,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Also remove the incomplete checkpoints of jobs that have ended; a job that runs would lose those that it is saving
    #[arg(long)]
    pub(crate) torn: bool,
    /// Only list what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Controller that is asked whether a job runs before its incomplete checkpoints are removed
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Stores with copies, nearest first, directories or URLs as for push; each copy is verified before use
    #[arg(long, value_name = "DIR|URL", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Directory of the parity that `checkpoint parity` wrote, used before --from [default: .parity in the store, if it
    /// exists]
    #[arg(long, value_name = "DIR")]
    pub(crate) parity: Option<PathBuf>,
    /// Restrict to this step; restores it completely even if nothing is left of it
    #[arg(long)]
    pub(crate) step: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TortureArgs {
    /// Number of cases: of each kind of damage; of kills, spread over the phases of a save; and of disk faults, spread
    /// over their kinds. Kills and disk faults run once with whole images and once through windows
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) cases: u64,
    /// Random seed; the same seed gives the same damage
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Working directory; a temporary folder in it is removed at the end [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: DocumentFormatArgs,
}
