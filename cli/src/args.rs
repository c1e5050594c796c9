//! Words of the command line, as typed. What they mean is decided by the commands.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::commands::bench::BenchArgs;
use crate::commands::checkpoint::CheckpointArgs;
use crate::commands::inject::InjectArgs;
use crate::commands::preflight::PreflightArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use rankguard_console::{Format, FormatArgs};
use rankguard_model::{Best, Good, Retention};

/// Keeps long training runs alive on clusters that fail, and tells truthfully what failed and why.
#[derive(Debug, Parser)]
#[command(name = "rankguard", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Data goes to standard output, everything else to standard error.
Exit codes: 0 fine, 1 something wrong was found, 2 it could not be done, 64 usage or configuration.
Settings: a TOML file (--config), then the environment, then flags; `rankguard config show` lists them all.")]
pub(crate) struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// Configuration file (TOML)
    #[arg(
        long,
        global = true,
        env = "RANKGUARD_CONFIG",
        value_name = "FILE",
        help_heading = "Everywhere"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Which log lines to show, as in RUST_LOG: `info`, `rankguard_agent=debug` ... [setting log.filter]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Everywhere")]
    pub(crate) log: Option<String>,
    /// How log lines look on standard error: text or json [setting log.format]
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Everywhere")]
    pub(crate) log_format: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take a real training job through real failures on this machine, and show what became of it
    Demo(DemoArgs),
    /// Run the controller: evidence in, cases and orders out
    Controller(ControllerArgs),
    /// Run the agent of this node: observe, run ranks, keep checkpoints
    Agent(Box<AgentArgs>),
    /// Let a fault happen to the agent of this node, to see what becomes of it
    Inject(InjectArgs),
    /// Say whether this node has what a job needs, before the job finds out
    Preflight(Box<PreflightArgs>),
    /// Submit a training job and follow it to its end
    Run(RunArgs),
    /// Show nodes and jobs
    Status(StatusArgs),
    /// Show what failed, and why
    Cases(CasesArgs),
    /// Stop a job for good
    Cancel(CancelArgs),
    /// Keep work from a node, or give it back
    Node(NodeArgs),
    /// Look at a checkpoint store, without a controller
    Checkpoint(CheckpointArgs),
    /// Read logs that others wrote and say what failed
    Diagnose(DiagnoseArgs),
    /// Name the failure of each case of JSON lines, one verdict a line
    Classify(ClassifyArgs),
    /// Say what a failure class, an XID or a log line means
    Explain(ExplainArgs),
    /// Show published failure taxonomies, and where our classes stand in them
    Taxonomy(TaxonomyArgs),
    /// Read published failure data and one's own as canonical tables
    Dataset(HistoryArgs),
    /// Answer a question from failure data, beside the published figures
    Study(HistoryArgs),
    /// Feed history through the same brain that runs live
    Replay(HistoryArgs),
    /// Compare recovery policies on failure and capacity traces
    Simulate(HistoryArgs),
    /// Write the report page of a running controller
    Report(ReportArgs),
    /// Measure this program on this machine, beside the machine's limits and other tools
    Bench(BenchArgs),
    /// Check or show the configuration
    Config(ConfigArgs),
    /// One rank of the demo's job; started by agents
    #[command(hide = true)]
    DemoRank(DemoRankArgs),
    /// Calls of an agent into the GPU library; started by agents
    #[command(hide = true)]
    GpuCalls(GpuCallsArgs),
    /// The Python stacks of a rank, for its agent; started by agents
    #[command(hide = true)]
    StackCalls(StackCallsArgs),
}

/// `stack-calls`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StackCallsArgs {
    /// The process
    pub(crate) pid: u32,
}

/// `gpu-calls`.
#[derive(Debug, Clone, Parser)]
#[command(name = "rankguard gpu-calls")]
pub(crate) struct GpuCallsArgs {
    /// The library; the system's own when absent
    #[arg(long)]
    pub(crate) library: Option<PathBuf>,
    /// Longest time of one call
    #[arg(long)]
    pub(crate) deadline_ms: u64,
}

/// Words for the program of the history commands, help included.
#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct HistoryArgs {
    /// Its words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    pub(crate) words: Vec<OsString>,
}

/// Where the controller is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ControllerAddress {
    /// Address of the controller [setting client.controller]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<String>,
}

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

/// `controller`. Each flag is a setting of the same name in `[controller]`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ControllerArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Directory of the journal
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Silence after which a node is taken for lost, milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) silence_limit_ms: Option<String>,
    /// Take recorded evidence only (`rankguard replay --into`): no live agents, no jobs, and every case is marked
    #[arg(long)]
    pub(crate) replay_only: bool,
}

/// `agent`. Each flag is a setting of the same name in `[agent]`.
#[derive(Debug, Clone, Default, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    /// What to do instead of running the agent.
    #[command(subcommand)]
    pub(crate) action: Option<AgentAction>,
    /// Name of this node [default: the host name]
    #[arg(long)]
    pub(crate) node: Option<String>,
    /// Address at which other nodes reach this one
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Address of the controller
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<String>,
    /// Directory of the agent's own files; one agent a directory
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Ranks this node can run at once
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<String>,
    /// What fails together with this node (rack, switch, power feed)
    #[arg(long, value_name = "NAME")]
    pub(crate) failure_domain: Option<String>,
    /// Where to serve chunks to other agents; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer_listen: Option<String>,
    /// Where to serve numbers for Prometheus; port 0 takes a free one [default: nowhere]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics_listen: Option<String>,
    /// `/dev/kmsg`, a file that kernel lines are appended to, or `off`
    #[arg(long, value_name = "SOURCE")]
    pub(crate) kernel_log: Option<String>,
    /// A log file to follow besides the output of the ranks; may be repeated
    #[arg(long = "job-log", value_name = "FILE")]
    pub(crate) job_logs: Vec<String>,
    /// The sysfs tree
    #[arg(long, value_name = "DIR")]
    pub(crate) sysfs_root: Option<PathBuf>,
    /// The procfs tree
    #[arg(long, value_name = "DIR")]
    pub(crate) proc_root: Option<PathBuf>,
    /// The GPU management library
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
    /// Watch made-up GPUs that play this scenario; all that is found about them is marked synthetic
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) simulate: Option<PathBuf>,
    /// Let `rankguard inject` make faults happen here
    #[arg(long)]
    pub(crate) injection: bool,
}

/// `agent ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AgentAction {
    /// Ask the agent of this node what it knows, without a controller
    Status(AgentStatusArgs),
}

/// `agent status`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentStatusArgs {
    /// Directory of the agent's own files [setting agent.state_dir]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How to print; csv is not for so many things
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Which checkpoints stay: whatever any of these rules names.
#[derive(Debug, Clone, Args)]
pub(crate) struct KeepArgs {
    /// Committed checkpoints to keep
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: u32,
    /// Also keep those whose step is a multiple of this
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
    /// Also keep the first of each stretch of so many minutes
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keep_minutes: Option<u64>,
    /// Also keep so many of the best
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep_best: Option<u32>,
    /// What is measured of the best
    #[arg(long, value_name = "METRIC", default_value = "loss")]
    pub(crate) best_by: String,
    /// Which values of it are good
    #[arg(long, value_enum, default_value_t = BestIs::Low)]
    pub(crate) best_is: BestIs,
}

/// Which values of a metric are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BestIs {
    /// The lowest
    Low,
    /// The highest
    High,
}

impl KeepArgs {
    /// The rules as the controller has them.
    pub(crate) fn rules(&self) -> Retention {
        let best = self.keep_best.map(|count| Best {
            metric: self.best_by.clone(),
            good: match self.best_is {
                BestIs::Low => Good::Low,
                BestIs::High => Good::High,
            },
            count,
        });
        Retention {
            last: self.keep,
            every_steps: self.keep_every,
            every_ms: self.keep_minutes.map(|minutes| minutes * 60_000),
            best,
        }
    }
}

/// `run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// How many nodes: `MIN:MAX`, or one number
    #[arg(long, value_name = "MIN:MAX", default_value = "1")]
    pub(crate) nodes: NodeCount,
    /// Ranks on each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks_per_node: u32,
    /// Checkpoint store, the same directory on every node
    #[arg(long, value_name = "DIR", requires = "checkpoint_every")]
    pub(crate) checkpoint_dir: Option<PathBuf>,
    /// Steps between checkpoints
    #[arg(long, value_name = "STEPS", requires = "checkpoint_dir", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) checkpoint_every: Option<u64>,
    /// Which checkpoints stay.
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Name of the job [default: the program's name and a number]
    #[arg(long, value_name = "JOB")]
    pub(crate) name: Option<String>,
    /// Failures of one class that are retried before the job is stopped
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) max_restarts: u32,
    /// Extra environment of the ranks; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<EnvPair>,
    /// Working directory of the ranks [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Submit and return
    #[arg(long)]
    pub(crate) detach: bool,
    /// Program and arguments; each rank runs one
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// `MIN:MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeCount {
    /// Fewest.
    pub(crate) min: u32,
    /// Most.
    pub(crate) max: u32,
}

impl std::str::FromStr for NodeCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("{text:?} is not a number; want MIN:MAX"))
        };
        let (min, max) = (number(min)?, number(max)?);
        if min == 0 {
            return Err("a job needs at least 1 node".to_owned());
        }
        if min > max {
            return Err(format!("at least {min} and at most {max} cannot both be"));
        }
        Ok(Self { min, max })
    }
}

/// `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvPair {
    /// The variable.
    pub(crate) key: String,
    /// What it holds.
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
            _ => Err("want KEY=VALUE".to_owned()),
        }
    }
}

/// `status`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// What to list; json gives both
    #[arg(value_enum, default_value_t)]
    pub(crate) what: StatusPart,
}

/// What `status` lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusPart {
    /// Nodes and jobs
    #[default]
    All,
    /// Nodes
    Nodes,
    /// Jobs
    Jobs,
}

/// `cases`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CasesArgs {
    /// What to do with them; `list` when not given.
    #[command(subcommand)]
    pub(crate) action: Option<CasesAction>,
    /// As for `list`.
    #[command(flatten)]
    pub(crate) list: CasesListArgs,
}

/// `cases ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum CasesAction {
    /// One line a case
    List(CasesListArgs),
    /// Everything about one case
    Show(CasesShowArgs),
}

/// `cases list`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CasesListArgs {
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Only cases of this job
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Only cases that are not over
    #[arg(long)]
    pub(crate) open: bool,
    /// Ask the agent of this node instead of a controller: what its own newest findings amount to
    #[arg(long, conflicts_with = "controller")]
    pub(crate) local: bool,
    /// With --local, directory of the agent's own files [setting agent.state_dir]
    #[arg(long, value_name = "DIR", requires = "local")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// `cases show`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CasesShowArgs {
    /// Its number
    pub(crate) case: u64,
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// How to print; csv is not for one case
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// `cancel`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CancelArgs {
    /// Name of the job
    pub(crate) job: String,
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

/// `node`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) action: NodeAction,
}

/// `node ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeAction {
    /// Place nothing new on a node
    Cordon {
        /// Name of the node
        node: String,
        /// Why, for those who come after you
        #[arg(long, default_value = "cordoned by hand")]
        reason: String,
        /// Where the controller is.
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// Use a node again
    Uncordon {
        /// Name of the node
        node: String,
        /// Where the controller is.
        #[command(flatten)]
        address: ControllerAddress,
    },
}

/// `diagnose`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiagnoseArgs {
    /// Files and folders of logs: kernel, rank, launcher or scheduler, plain, .gz or .zst
    #[arg(required_unless_present_any = ["flight_recorder", "timings"], value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Instead of logs: a folder of NCCL flight-recorder dumps, one a rank; says who keeps whom waiting
    #[arg(long, value_name = "DIR", conflicts_with_all = ["paths", "timings", "healthy", "clock_offset"])]
    pub(crate) flight_recorder: Option<PathBuf>,
    /// Ranks of the job, where fewer left a dump
    #[arg(long, value_name = "RANKS", requires = "flight_recorder")]
    pub(crate) world: Option<u32>,
    /// Instead of logs: timings of operations (Parquet, CSV or JSON lines) or of steps; says who slows the job down
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "healthy", "clock_offset"])]
    pub(crate) timings: Option<PathBuf>,
    /// Sizes of the job that the timings are of: `key: value` lines such as `dp_size: 4`
    #[arg(long, value_name = "FILE", requires = "timings")]
    pub(crate) meta: Option<PathBuf>,
    /// Logs of a run that went well, as often as needed; what the failing logs say otherwise is evidence too
    #[arg(long, value_name = "PATH")]
    pub(crate) healthy: Vec<PathBuf>,
    /// How many seconds a node's clock is ahead of the others, measured; as often as needed
    #[arg(long, value_name = "NODE=SECONDS", value_parser = clock_offset, allow_hyphen_values = true)]
    pub(crate) clock_offset: Vec<(String, f64)>,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// `node-3=0.25`.
fn clock_offset(text: &str) -> Result<(String, f64), String> {
    let wanted = "write NODE=SECONDS, as in node-3=0.25";
    let (node, seconds) = text.split_once('=').ok_or(wanted)?;
    let seconds: f64 = seconds
        .parse()
        .map_err(|_| format!("{seconds:?} is no number; {wanted}"))?;
    if node.is_empty() || !seconds.is_finite() {
        return Err(wanted.to_owned());
    }
    Ok((node.to_owned(), seconds))
}

/// `classify`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClassifyArgs {
    /// Files of JSON lines {"id", "sources": [{"kind", "rank", "node", "lines"}]}; - for standard input
    #[arg(required = true, value_name = "CASES")]
    pub(crate) paths: Vec<PathBuf>,
    /// How to print: jsonl or json
    #[arg(long, value_enum, default_value = "jsonl", value_name = "FORMAT")]
    pub(crate) format: Format,
}

/// `explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainArgs {
    /// A class (`gpu-fallen-off-bus`), a code (`XID 79`, `SXid 12028`), or a line of a log in quotes
    #[arg(required = true, value_name = "CLASS|CODE|LINE")]
    pub(crate) words: Vec<String>,
    /// What a person adds.
    #[command(flatten)]
    pub(crate) catalogue: CatalogueArgs,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// What a person adds to the built-in catalogue.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CatalogueArgs {
    /// File that adds classes, signatures, codes or a taxonomy (TOML); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) catalogue: Vec<PathBuf>,
}

/// `taxonomy`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TaxonomyArgs {
    /// What to show.
    #[command(subcommand)]
    pub(crate) command: TaxonomyCommand,
}

/// What to show of the taxonomies.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TaxonomyCommand {
    /// List the taxonomies
    Ls {
        /// What a person adds.
        #[command(flatten)]
        catalogue: CatalogueArgs,
        /// How to print.
        #[command(flatten)]
        format: FormatArgs,
    },
    /// One taxonomy: citation, what was studied, categories with definitions and published figures
    Show {
        /// Its id (`hu-nsdi2024`)
        id: String,
        /// What a person adds.
        #[command(flatten)]
        catalogue: CatalogueArgs,
        /// How to print.
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Where each of our classes stands in each taxonomy
    Crosswalk {
        /// Only this class, by id or alias
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        /// What a person adds.
        #[command(flatten)]
        catalogue: CatalogueArgs,
        /// How to print.
        #[command(flatten)]
        format: FormatArgs,
    },
}

/// `report`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// Folder of report.html and report.json
    #[arg(long, value_name = "DIR", default_value = "rankguard-report")]
    pub(crate) out: PathBuf,
    /// Heading of the page
    #[arg(long, default_value = "Rankguard report")]
    pub(crate) title: String,
}

/// `config`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

/// `config ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ConfigAction {
    /// Name every mistake
    Check,
    /// Every setting, its value and where that came from
    Show(FormatArgs),
}

/// `demo-rank`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoRankArgs {
    /// Passes over the data
    #[arg(long)]
    pub(crate) epochs: Option<u64>,
    /// Samples a step, over all ranks
    #[arg(long)]
    pub(crate) batch: Option<usize>,
    /// Decides initial weights and sample order
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Least length of a step, milliseconds
    #[arg(long)]
    pub(crate) step_ms_min: Option<u64>,
    /// Folder of the results
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Plants a bug at this step
    #[arg(long)]
    pub(crate) bug_at_step: Option<u64>,
    /// The rank with the bug
    #[arg(long)]
    pub(crate) bug_rank: Option<u32>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_node_count_is_a_range_or_one_number() {
        let parse = |text: &str| text.parse::<NodeCount>();
        assert_eq!(parse("2:3"), Ok(NodeCount { min: 2, max: 3 }));
        assert_eq!(parse("4"), Ok(NodeCount { min: 4, max: 4 }));
        for wrong in ["", "0", "3:2", "a:b", "1:2:3", "-1"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
