//! Entry point: parses the arguments, runs the command, and returns the exit code.

use clap::{CommandFactory as _, Parser, Subcommand};
use rankguard_console::ending;

use crate::args::CommonArgs;
use crate::commands::agent::AgentArgs;
use crate::commands::audit::AuditArgs;
use crate::commands::bench::BenchArgs;
use crate::commands::cancel::CancelArgs;
use crate::commands::cases::CasesArgs;
use crate::commands::checkpoint::CheckpointArgs;
use crate::commands::classify::ClassifyArgs;
use crate::commands::config::ConfigArgs;
use crate::commands::controller::ControllerArgs;
use crate::commands::demo_rank::DemoRankArgs;
use crate::commands::diagnose::DiagnoseArgs;
use crate::commands::efficiency::EfficiencyArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::gpu_calls::GpuCallsArgs;
use crate::commands::history::HistoryArgs;
use crate::commands::identity::IdentityArgs;
use crate::commands::inject::InjectArgs;
use crate::commands::join_token::JoinTokenArgs;
use crate::commands::kubernetes::KubernetesArgs;
use crate::commands::logs::LogsArgs;
use crate::commands::node::NodeArgs;
use crate::commands::notify::NotifyArgs;
use crate::commands::preflight::PreflightArgs;
use crate::commands::rendezvous::RendezvousArgs;
use crate::commands::report::ReportArgs;
use crate::commands::run::RunArgs;
use crate::commands::shell::ShellArgs;
use crate::commands::slurm::SlurmArgs;
use crate::commands::stack_calls::StackCallsArgs;
use crate::commands::status::StatusArgs;
use crate::commands::taxonomy::TaxonomyArgs;
use crate::commands::token::TokenArgs;
use crate::demo::DemoArgs;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::runtime::block_on;
use crate::{commands, demo, out};

/// Keep long training runs alive on clusters that fail, and report what failed and why
#[derive(Debug, Parser)]
#[command(name = "rankguard", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Data goes to standard output, everything else to standard error.
Exit codes: 0 fine (`status` and `cases` also with open cases), 1 a check found something wrong,
  2 it could not be done, 3 the job failed, 4 the job was cancelled, 64 usage or configuration,
  69 no controller answers.
Settings: a TOML file (--config), then the environment, then flags; `rankguard config show` lists them all.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands of `rankguard`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a real training job through real failures on this machine and report the outcome
    Demo(DemoArgs),
    /// Run the controller: receive evidence, open cases, send orders to agents
    Controller(ControllerArgs),
    /// Run the agent of this node: collect evidence, run ranks, hold checkpoints
    Agent(Box<AgentArgs>),
    /// Inject a fault on this node (drill)
    Inject(InjectArgs),
    /// Check this node against the requirements of a job before the job starts
    Preflight(Box<PreflightArgs>),
    /// Submit a training job and follow it to its end
    Run(RunArgs),
    /// Show nodes and jobs
    Status(StatusArgs),
    /// Show the output of a job's ranks
    Logs(LogsArgs),
    /// Show what failed and why
    Cases(CasesArgs),
    /// Show the use of the wall time of jobs, and their effective training time ratio (ETTR)
    Efficiency(EfficiencyArgs),
    /// Cancel a job permanently
    Cancel(CancelArgs),
    /// Cordon, uncordon, drain, forget or show nodes
    Node(NodeArgs),
    /// List, verify, plan, convert, copy and repair checkpoints, without a controller
    Checkpoint(CheckpointArgs),
    /// Diagnose a failure from existing logs
    Diagnose(DiagnoseArgs),
    /// Classify each case of JSON lines; print one verdict per line
    Classify(ClassifyArgs),
    /// Explain a failure class, an XID or a log line
    Explain(ExplainArgs),
    /// Show published failure taxonomies and their mapping to rankguard's classes
    Taxonomy(TaxonomyArgs),
    /// Read published or your own failure data as canonical tables
    Dataset(HistoryArgs),
    /// Answer a question from failure data, next to the published figures
    Study(HistoryArgs),
    /// Replay history through the controller logic that runs live
    Replay(HistoryArgs),
    /// Compare recovery policies on failure and capacity traces
    Simulate(HistoryArgs),
    /// Write the report page of a running controller
    Report(ReportArgs),
    /// Measure this program on this machine, next to the machine's limits and other tools
    Bench(BenchArgs),
    /// Create the authority of a cluster and certificates of its parts, or show a certificate
    Identity(IdentityArgs),
    /// Create, list and revoke access tokens of the HTTP API
    Token(TokenArgs),
    /// Create, list and revoke tokens with which nodes obtain their certificates
    JoinToken(JoinTokenArgs),
    /// Show who changed what, with the result
    Audit(AuditArgs),
    /// Check or show the configuration
    Config(ConfigArgs),
    /// Test the receivers of notifications
    Notify(NotifyArgs),
    /// Work beside Slurm: keep node states equal, gate the start of jobs, exclude nodes
    Slurm(SlurmArgs),
    /// Work beside Kubernetes: node conditions, cordons kept equal, evictions, pods of a node
    Kubernetes(KubernetesArgs),
    /// Write shell completions or manual pages
    Shell(ShellArgs),
    /// Connect a torchrun process to the controller; started by torchrun
    #[command(hide = true)]
    Rendezvous(RendezvousArgs),
    /// Run one rank of the demo's job; started by agents
    #[command(hide = true)]
    DemoRank(DemoRankArgs),
    /// Serve an agent's calls into the GPU library; started by agents
    #[command(hide = true)]
    GpuCalls(GpuCallsArgs),
    /// Read the Python stacks of a rank for its agent; started by agents
    #[command(hide = true)]
    StackCalls(StackCallsArgs),
}

/// Hint for arguments that are not a command.
const HINT: &str = "`rankguard --help` lists the commands, `rankguard COMMAND --help` their options";

/// Runs the program.
pub(crate) fn main() -> CommandExit {
    let ended = |ended: Result<CommandExit, CliError>| {
        ended.unwrap_or_else(|error| {
            out::notes(&error.lines());
            error.exit()
        })
    };
    if commands::supervise_ranks::is_asked_for() {
        return ending::last(ended(commands::supervise_ranks::run()));
    }
    // Helper processes of an agent parse their own arguments only: building the parser of all commands would occupy
    // memory for their whole life.
    let exit = match (commands::gpu_calls::parse_args(), commands::keep_arenas::parse_args()) {
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

fn dispatch(cli: Cli) -> Result<CommandExit, CliError> {
    let common = &cli.common;
    match cli.command {
        Command::Demo(args) => block_on(demo::run(args))?.map_err(|problem| {
            CliError::failure(
                "the demo failed",
                "run `rankguard demo --keep` to keep the logs of all processes",
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
        Command::Efficiency(args) => commands::efficiency::run(&args, common),
        Command::Cancel(args) => {
            let client = args.address.client(common)?;
            block_on(commands::cancel::run(&args, &client))?
        }
        Command::Node(args) => commands::node::run(args, common),
        Command::Checkpoint(args) => commands::checkpoint::run(args, common),
        Command::Classify(args) => commands::classify::run(args),
        Command::Diagnose(args) => commands::diagnose::run(args, common),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Dataset(args) => Err(commands::history::exec_history("dataset", args.words)),
        Command::Study(args) => Err(commands::history::exec_history("study", args.words)),
        Command::Replay(args) => Err(commands::history::exec_history("replay", args.words)),
        Command::Simulate(args) => Err(commands::history::exec_history("simulate", args.words)),
        Command::Taxonomy(args) => commands::taxonomy::run(&args),
        Command::Report(args) => {
            let client = args.address.client(common)?;
            block_on(commands::report::run(&args, &client))?
        }
        Command::Bench(args) => commands::bench::run(&args),
        Command::Identity(args) => commands::identity::run(&args),
        Command::Token(args) => commands::token::run(args, common),
        Command::JoinToken(args) => commands::join_token::run(args, common),
        Command::Audit(args) => commands::audit::run(args, common),
        Command::Config(args) => commands::config::run(&args, common),
        Command::Notify(args) => commands::notify::run(&args, common),
        Command::Slurm(args) => commands::slurm::run(args, common),
        Command::Kubernetes(args) => commands::kubernetes::run(args, common),
        Command::Shell(args) => commands::shell::run(&args, Cli::command()),
        Command::Rendezvous(args) => commands::rendezvous::run(&args, common),
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

    /// Folders of crates whose texts people meet.
    const SOURCES: [&str; 8] = [
        "cli/src",
        "cli/console/src",
        "history/src",
        "agent/src",
        "controller",
        "identity/src",
        "checkpoint",
        "analyzers",
    ];

    fn source_files(folder: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the workspace").flatten() {
            let path = entry.path();
            if path.is_dir() {
                source_files(&path, files);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }

    /// Returns why a command of a hint does not run: an unknown or a missing subcommand.
    fn incomplete(command: &str) -> Option<String> {
        let mut here = Cli::command();
        here.build();
        for word in command.split_whitespace() {
            if !here.has_subcommands() {
                return None;
            }
            let Some(next) = here.find_subcommand(word) else {
                let is_complete =
                    !here.is_subcommand_required_set() || !word.starts_with(|c: char| c.is_ascii_lowercase());
                return (!is_complete).then(|| format!("{} has no command {word}", here.get_name()));
            };
            here = next.clone();
        }
        let needs_more = here.has_subcommands() && here.is_subcommand_required_set();
        needs_more.then(|| format!("{} needs a subcommand", here.get_name()))
    }

    /// Finding 14 of the first operator: a hint named `rankguard taxonomy`, which only prints its usage.
    #[test]
    fn every_command_of_a_text_runs() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for folder in SOURCES {
            source_files(&root.join(folder), &mut files);
        }
        let mut wrong = Vec::new();
        let mut checked = 0;
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source file");
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for command in line
                    .split("`rankguard ")
                    .skip(1)
                    .filter_map(|rest| rest.split('`').next())
                {
                    checked += 1;
                    if let Some(why) = incomplete(command) {
                        wrong.push(format!("{}: `rankguard {command}`: {why}", file.display()));
                    }
                }
            }
        }
        assert!(checked > 100, "{checked}");
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
