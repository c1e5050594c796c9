//! The commands that read history: `rankguard dataset | study | replay | simulate`.
//!
//! A binary of its own, which `rankguard` starts from the folder it lies in: these commands stand on polars, and
//! nothing that keeps a job alive should wait for that to be built (decision 8).

mod bench_replay;
mod bench_studies;
mod dataset;
mod input;
mod picture;
mod replay;
mod simulate;
mod study;

use clap::{Parser, Subcommand};
use rankguard_console::ending;
use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::out;

/// Replays and studies allocate small things by the million, on every core; the system's allocator takes a third of a replay.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Published failure data and one's own: tables, studies, replay, what-if.
#[derive(Debug, Parser)]
#[command(
    name = "rankguard",
    bin_name = "rankguard",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Published failure data and one's own: list, check, import, export.
    Dataset(dataset::DatasetArgs),
    /// Feed history through the same brain that runs live
    Replay(replay::ReplayArgs),
    /// Measure the brain on history
    #[command(hide = true)]
    Bench(bench_replay::BenchArgs),
    /// Compare recovery policies on failure and capacity traces
    Simulate(Box<simulate::SimulateArgs>),
    /// Questions to failure history, and published figures computed again.
    Study(study::StudyArgs),
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => dispatch(cli).unwrap_or_else(|error| {
            out::notes(&error.lines());
            error.exit()
        }),
        Err(problem) => ending::usage(&problem, "`rankguard COMMAND --help` shows what each command takes"),
    };
    ending::last(exit).into()
}

fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    match cli.command {
        Command::Dataset(args) => dataset::run(args),
        Command::Replay(args) => replay::run(&args),
        Command::Bench(args) => bench_replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Study(args) => study::run(args),
    }
}
