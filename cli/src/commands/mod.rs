//! One file a command. Here: from words to the command, and from its end to the exit code.

mod agent;
pub(crate) mod bench;
mod cancel;
mod cases;
pub(crate) mod checkpoint;
mod classify;
mod config;
mod controller;
mod demo_rank;
mod diagnose;
mod explain;
pub(crate) mod gpu_calls;
mod history;
pub(crate) mod inject;
mod keep_arenas;
mod local;
mod node;
pub(crate) mod preflight;
mod report;
mod run;
mod stack_calls;
mod status;
mod taxonomy;

use std::future::Future;

use clap::Parser as _;

use crate::args::{Cli, Command, CommonArgs, ControllerAddress};
use crate::client::{Client, ClientError};
use crate::config::{Config, Flag};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{demo, out};

/// The whole program.
pub(crate) fn main() -> Exit {
    let ended = |ended: Result<Exit, CliError>| {
        ended.unwrap_or_else(|error| {
            out::note(&error.lines());
            error.exit()
        })
    };
    // What an agent starts beside itself reads its words without those of all commands, which would take memory for good.
    let exit = match (gpu_calls::asked_for(), keep_arenas::asked_for()) {
        (Some(Ok(args)), _) => ended(gpu_calls::run(&args)),
        (_, Some(Ok(args))) => ended(keep_arenas::run(&args)),
        (Some(Err(problem)), _) | (_, Some(Err(problem))) => usage(&problem),
        (None, None) => match Cli::try_parse() {
            Ok(cli) => ended(dispatch(cli)),
            Err(problem) => usage(&problem),
        },
    };
    match out::finish() {
        Ok(()) => exit,
        Err(problem) => {
            out::note(&format!(
                "error: cannot write to standard output: {problem}\nhint: is the disk full?"
            ));
            Exit::Failure
        }
    }
}

/// Help and version are data that was asked for; everything else is a mistake.
fn usage(problem: &clap::Error) -> Exit {
    let text = problem.render().to_string();
    if !problem.use_stderr() {
        out::text(&text);
        return Exit::Fine;
    }
    let text = text
        .trim_end()
        .trim_end_matches("For more information, try '--help'.")
        .trim_end();
    out::note(&format!(
        "{text}\nhint: `rankguard --help` lists the commands, `rankguard COMMAND --help` what each takes"
    ));
    Exit::Usage
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
        Command::Controller(args) => controller::run(&args, common),
        Command::Agent(args) => agent::run(&args, common),
        Command::Inject(args) => inject::run(&args, common),
        Command::Preflight(args) => preflight::run(*args, common),
        Command::Run(args) => {
            let client = client(&args.address, common)?;
            block_on(run::run(args, &client))?
        }
        Command::Status(args) => {
            let client = client(&args.address, common)?;
            block_on(status::run(&args, &client))?
        }
        Command::Cases(args) => cases::run(args, common),
        Command::Cancel(args) => {
            let client = client(&args.address, common)?;
            block_on(cancel::run(&args, &client))?
        }
        Command::Node(args) => node::run(args, common),
        Command::Checkpoint(args) => checkpoint::run(args),
        Command::Classify(args) => classify::run(args),
        Command::Diagnose(args) => diagnose::run(args),
        Command::Explain(args) => explain::run(&args),
        Command::Dataset(args) => Err(history::become_it("dataset", args.words)),
        Command::Study(args) => Err(history::become_it("study", args.words)),
        Command::Replay(args) => Err(history::become_it("replay", args.words)),
        Command::Simulate(args) => Err(history::become_it("simulate", args.words)),
        Command::Taxonomy(args) => taxonomy::run(&args),
        Command::Report(args) => {
            let client = client(&args.address, common)?;
            block_on(report::run(&args, &client))?
        }
        Command::Bench(args) => bench::run(&args),
        Command::Config(args) => config::run(&args, common),
        Command::GpuCalls(args) => gpu_calls::run(&args),
        Command::StackCalls(args) => stack_calls::run(&args),
        Command::DemoRank(args) => Ok(demo_rank::run(args)),
    }
}

/// Settings, with the flags that a command adds to the common ones.
fn settings(common: &CommonArgs, flags: impl IntoIterator<Item = Option<Flag>>) -> Result<Config, CliError> {
    load(common, flags).map_err(|mistakes| {
        CliError::usage(
            mistakes.to_string(),
            "`rankguard config show` lists every setting with its meaning",
        )
    })
}

fn load(common: &CommonArgs, flags: impl IntoIterator<Item = Option<Flag>>) -> Result<Config, crate::config::Mistakes> {
    let shared = [
        Flag::of("log.filter", "--log", common.log.as_deref()),
        Flag::of("log.format", "--log-format", common.log_format.as_deref()),
    ];
    let flags: Vec<Flag> = shared.into_iter().chain(flags).flatten().collect();
    Config::load(common.config.as_deref(), std::env::vars_os(), &flags)
}

/// The controller that a command speaks to.
fn client(address: &ControllerAddress, common: &CommonArgs) -> Result<Client, CliError> {
    let flag = Flag::of("client.controller", "--controller", address.controller.as_deref());
    Ok(Client::new(&settings(common, [flag])?.client_address()))
}

/// Runs something that waits, on this thread.
pub(crate) fn block_on<F: Future>(work: F) -> Result<F::Output, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|problem| {
        CliError::failure("cannot start the runtime", "are there too many processes or threads?").because(problem)
    })?;
    let output = runtime.block_on(work);
    // What is still blocked in a system call must not keep a finished command from ending.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    Ok(output)
}

/// A controller that does not answer, or refuses, as an error with a hint.
impl From<ClientError> for CliError {
    fn from(problem: ClientError) -> Self {
        let hint = match &problem {
            ClientError::Address { .. } => "--controller HOST:PORT, RANKGUARD_CONTROLLER or client.controller sets it",
            ClientError::Unreachable { .. } | ClientError::Silent { .. } => {
                "is \"rankguard controller\" running there? --controller or RANKGUARD_CONTROLLER names another address"
            }
            ClientError::Refused(_) if problem.is_not_found() => {
                "`rankguard status` and `rankguard cases` list what there is"
            }
            ClientError::Refused(_) => "`rankguard status` shows what the controller knows",
            ClientError::Answer { .. } => "are `rankguard` and the controller of the same version?",
        };
        let what = problem.to_string();
        match problem {
            ClientError::Address { .. } => Self::usage(what, hint),
            ClientError::Answer { source, .. } => Self::failure(what, hint).because(source),
            _ => Self::failure(what, hint),
        }
    }
}
