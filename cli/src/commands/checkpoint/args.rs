//! Words of `rankguard checkpoint`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use rankguard_checkpoint_exchange::DEFAULT_FILE_BYTES;
use rankguard_model::{Generation, Step};

use super::plan::PlanArgs;
use crate::args::{ControllerAddress, FormatArgs};
use crate::commands::keep::KeepArgs;

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
        /// Ask this controller what memory has of it, and which nodes may be lost
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// How often to checkpoint on which tier, with the reasoning and what else could be done
    Plan(PlanArgs),
    /// What a checkpoint holds: tensors, ranks, where its bytes lie
    Show(ShowArgs),
    /// What differs between two checkpoints
    Diff(DiffArgs),
    /// Write a checkpoint in a format that others read
    Export(ExportArgs),
    /// Make a checkpoint of files that others wrote: safetensors, or a directory of torch.distributed.checkpoint
    Import(ImportArgs),
    /// Mirror committed checkpoints to an object store; goes on where it stopped, overwrites nothing
    Push(PushArgs),
    /// Bring checkpoints back from an object store, every byte checked
    Pull(PullArgs),
    /// Put shards under parity, so that lost or damaged ones come back
    Parity(ParityArgs),
    /// Read all of a store at a capped rate and name what is damaged; 1 when something is
    Scrub(ScrubArgs),
    /// Write good copies from other stores over what is damaged or missing
    Repair(RepairArgs),
    /// Remove what no rule keeps, or say what would go
    Gc(GcArgs),
    /// Damage, kill and starve a checkpoint of its own, and count what goes wrong
    Torture(TortureArgs),
    /// A victim of `torture`; started by it
    #[command(hide = true)]
    TortureHand {
        /// What to do, as JSON
        errand: String,
    },
}

/// `checkpoint show`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArgs {
    /// Its step, or STEP-gGENERATION; the newest generation where there are several
    #[arg(value_name = "STEP")]
    pub(crate) which: Which,
    /// What to list; JSON has it all
    #[arg(long, value_enum, default_value_t = Part::Tensors)]
    pub(crate) list: Part,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// What `checkpoint show` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A line a tensor
    Tensors,
    /// A line a rank, with its small state
    Ranks,
    /// A line a file that holds bytes of it
    Origins,
}

/// `checkpoint diff`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiffArgs {
    /// The first: STEP or STEP-gGENERATION
    #[arg(value_name = "A")]
    pub(crate) before: Which,
    /// The second
    #[arg(value_name = "B")]
    pub(crate) after: Which,
    /// Read what changed and tell by how much
    #[arg(long)]
    pub(crate) values: bool,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// `checkpoint export`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
    /// Its step, or STEP-gGENERATION
    #[arg(value_name = "STEP")]
    pub(crate) which: Which,
    /// The checkpoint store
    #[arg(long = "dir", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Format [default: by the ending of --out: .safetensors; .pt, .pth, .bin or .ckpt for torch; else safetensors]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// Target: a file for torch, a directory for dcp, NAME.safetensors or a directory for safetensors
    #[arg(long, value_name = "PATH")]
    pub(crate) out: PathBuf,
    /// Replace the target, if it is a file or a directory with nothing but exported files
    #[arg(long)]
    pub(crate) force: bool,
    /// Export names that start with this only, for example `model.`
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Remove the prefix from the exported names
    #[arg(long, requires = "prefix")]
    pub(crate) strip_prefix: bool,
    /// In a directory: file size in bytes above which a new file begins
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_FILE_BYTES)]
    pub(crate) file_bytes: u64,
}

/// Format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One file, or several with an index; tensors, with the plain state as JSON in the metadata
    Safetensors,
    /// One file for torch.load(weights_only=True), with containers and plain state
    Torch,
    /// A directory for torch.distributed.checkpoint.load
    Dcp,
}

/// `checkpoint import`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImportArgs {
    /// A .safetensors file, a directory with such files, or a directory of torch.distributed.checkpoint
    pub(crate) path: PathBuf,
    /// The checkpoint store
    #[arg(long = "dir", value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// The job that will have it
    #[arg(long, value_name = "NAME")]
    pub(crate) job: String,
    /// Its step
    #[arg(long, value_name = "N")]
    pub(crate) step: u64,
    /// For how many ranks it is cut
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks: u32,
    /// Its generation; a run goes on from the greatest
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) generation: u64,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// A checkpoint as people name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Which {
    pub(crate) step: Step,
    pub(crate) generation: Option<Generation>,
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.parse::<u64>()
                .map_err(|_| "want STEP or STEP-gGENERATION".to_owned())
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

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        match self.generation {
            Some(generation) => write!(f, "-g{}", generation.0),
            None => Ok(()),
        }
    }
}

/// Which store.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// The checkpoint store; `ls` and `verify` also read object stores, by a URL as for push
    #[arg(long = "dir", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// `checkpoint push`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PushArgs {
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Where to: file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix; credentials come from
    /// the environment
    ///
    /// The bucket is there already. The environment of whoever sends (the agents, for `rankguard run --checkpoint-mirror`) names
    /// the rest, unless the machine has an identity of its own at the provider:
    ///
    /// S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION; for another server than Amazon's AWS_ENDPOINT=https://host:port,
    /// and AWS_ALLOW_HTTP=true where that is http.
    ///
    /// Google: GOOGLE_SERVICE_ACCOUNT=/path/key.json, or GOOGLE_SERVICE_ACCOUNT_KEY with its content; for another server
    /// "gcs_base_url" in that file.
    ///
    /// Azure: AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_KEY); for another server
    /// AZURE_STORAGE_ENDPOINT, or AZURE_STORAGE_USE_EMULATOR=true with AZURITE_BLOB_STORAGE_URL.
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

/// `checkpoint gc`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GcArgs {
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// What stays.
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Only say what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `checkpoint repair`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RepairArgs {
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Stores that hold copies, the nearest first, folders or URLs as for push; each copy is checked before it is used
    #[arg(long, value_name = "DIR|URL", required = true, num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Only this step; brings it back whole even when nothing is left of it
    #[arg(long)]
    pub(crate) step: Option<u64>,
}

/// `checkpoint torture`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TortureArgs {
    /// Cases of each kind of damage; kills, spread over the phases of a save; and faults of a disk, spread over their kinds.
    /// Kills and faults once with whole images and once through windows
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
