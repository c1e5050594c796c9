//! The whole program: from the words to a command, and from its end to the exit code.

use clap::{CommandFactory as _, Parser, Subcommand};
use rankguard_console::ending;

use crate::args::CommonArgs;
use crate::commands::agent::AgentArgs;
use crate::commands::bench::BenchArgs;
use crate::commands::cancel::CancelArgs;
use crate::commands::cases::CasesArgs;
use crate::commands::checkpoint::CheckpointArgs;
use crate::commands::classify::ClassifyArgs;
use crate::commands::config::ConfigArgs;
use crate::commands::controller::ControllerArgs;
use crate::commands::demo_rank::DemoRankArgs;
use crate::commands::diagnose::DiagnoseArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::gpu_calls::GpuCallsArgs;
use crate::commands::history::HistoryArgs;
use crate::commands::identity::IdentityArgs;
use crate::commands::inject::InjectArgs;
use crate::commands::logs::LogsArgs;
use crate::commands::node::NodeArgs;
use crate::commands::preflight::PreflightArgs;
use crate::commands::report::ReportArgs;
use crate::commands::run::RunArgs;
use crate::commands::shell::ShellArgs;
use crate::commands::stack_calls::StackCallsArgs;
use crate::commands::status::StatusArgs;
use crate::commands::taxonomy::TaxonomyArgs;
use crate::demo::DemoArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::runtime::block_on;
use crate::{commands, demo, out};

/// Keeps long training runs alive on clusters that fail, and tells truthfully what failed and why.
#[derive(Debug, Parser)]
#[command(name = "rankguard", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Data goes to standard output, everything else to standard error.
Exit codes: 0 fine, 1 something wrong was found, 2 it could not be done, 3 the job failed, 4 the job was cancelled,
  64 usage or configuration, 69 no controller answers.
Settings: a TOML file (--config), then the environment, then flags; `rankguard config show` lists them all.")]
pub(crate) struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
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
    /// Show the output of a job's ranks
    Logs(LogsArgs),
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
    /// Make the authority of a cluster and certificates of its parts, or show one
    Identity(IdentityArgs),
    /// Check or show the configuration
    Config(ConfigArgs),
    /// Write completions for a shell, or manual pages
    Shell(ShellArgs),
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

/// What words that are no command are answered with.
const HINT: &str = "`rankguard --help` lists the commands, `rankguard COMMAND --help` what each takes";

/// The whole program.
pub(crate) fn main() -> Exit {
    let ended = |ended: Result<Exit, CliError>| {
        ended.unwrap_or_else(|error| {
            out::notes(&error.lines());
            error.exit()
        })
    };
    if commands::supervise_ranks::is_asked_for() {
        return ending::last(ended(commands::supervise_ranks::run()));
    }
    // What an agent starts beside itself reads its words without those of all commands, which would take memory for good.
    let exit = match (commands::gpu_calls::asked_for(), commands::keep_arenas::asked_for()) {
        (Some(Ok(args)), _) => ended(commands::gpu_calls::run(&args)),
        (_, Some(Ok(args))) => ended(commands::keep_arenas::run(&args)),
        (Some(Err(problem)), _) | (_, Some(Err(problem))) => ending::usage(&problem, HINT),
        (None, None) => match Cli::try_parse() {
            Ok(cli) => ended(dispatch(cli)),
            Err(problem) => ending::usage(&problem, HINT),
        },
    };
    ending::last(exit)
}

fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let common = &cli.common;
    match cli.command {
        Command::Demo(args) => block_on(demo::run(args))?.map_err(|problem| {
            CliError::failure(
                "the demo failed",
                "`rankguard demo --keep` keeps the logs of all its processes",
            )
            .because(problem)
        }),
        Command::Controller(args) => commands::controller::run(&args, common),
        Command::Agent(args) => commands::agent::run(&args, common),
        Command::Inject(args) => commands::inject::run(&args, common),
        Command::Preflight(args) => commands::preflight::run(*args, common),
        Command::Run(args) => {
            let client = args.address.client(common)?;
            block_on(commands::run::run(args, &client))?
        }
        Command::Status(args) => {
            let client = args.address.client(common)?;
            block_on(commands::status::run(&args, &client))?
        }
        Command::Logs(args) => {
            let client = args.address.client(common)?;
            block_on(commands::logs::run(&args, &client))?
        }
        Command::Cases(args) => commands::cases::run(args, common),
        Command::Cancel(args) => {
            let client = args.address.client(common)?;
            block_on(commands::cancel::run(&args, &client))?
        }
        Command::Node(args) => commands::node::run(args, common),
        Command::Checkpoint(args) => commands::checkpoint::run(args, common),
        Command::Classify(args) => commands::classify::run(args),
        Command::Diagnose(args) => commands::diagnose::run(args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Dataset(args) => Err(commands::history::become_it("dataset", args.words)),
        Command::Study(args) => Err(commands::history::become_it("study", args.words)),
        Command::Replay(args) => Err(commands::history::become_it("replay", args.words)),
        Command::Simulate(args) => Err(commands::history::become_it("simulate", args.words)),
        Command::Taxonomy(args) => commands::taxonomy::run(&args),
        Command::Report(args) => {
            let client = args.address.client(common)?;
            block_on(commands::report::run(&args, &client))?
        }
        Command::Bench(args) => commands::bench::run(&args),
        Command::Identity(args) => commands::identity::run(&args),
        Command::Config(args) => commands::config::run(&args, common),
        Command::Shell(args) => commands::shell::run(&args, Cli::command()),
        Command::GpuCalls(args) => commands::gpu_calls::run(&args),
        Command::StackCalls(args) => commands::stack_calls::run(&args),
        Command::DemoRank(args) => Ok(commands::demo_rank::run(args)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }
}
