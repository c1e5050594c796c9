//! Commands on failure history: `rankguard dataset | study | replay | simulate`.
//!
//! Separate binary, which `rankguard` starts from its own folder: these commands depend on polars, and the build of
//! programs that keep a job alive must not wait for it (decision 8).

mod bench_replay;
mod bench_studies;
mod dataset;
mod input;
mod markdown;
mod picture;
mod replay;
mod simulate;
mod study;

use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser, Subcommand};
use rankguard_console::ending;
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::out;
use rankguard_console::waiting::WorkNote;

/// Replays and studies allocate small objects by the million, on every core; the system's allocator takes a third of a
/// replay.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Failure history: tables, studies, replay, what-if.
#[derive(Debug, Parser)]
#[command(
    name = "rankguard",
    bin_name = "rankguard",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Commands on failure history.
#[derive(Debug, Subcommand)]
enum Command {
    /// List, check, import and export failure data.
    Dataset(dataset::DatasetArgs),
    /// Replay history through the same decision core that runs live
    Replay(replay::ReplayArgs),
    /// Measure the decision core on history
    #[command(hide = true)]
    Bench(bench_replay::BenchArgs),
    /// Compare recovery policies on failure and capacity traces
    Simulate(Box<simulate::SimulateArgs>),
    /// Run studies on failure history, and reproduce published figures.
    Study(study::StudyArgs),
    /// Write the manual pages of these commands; called by `rankguard shell man`
    #[command(hide = true)]
    ManPages {
        /// Existing folder for the pages
        folder: PathBuf,
    },
    /// Print these commands for the command reference; called by `rankguard shell markdown`
    #[command(hide = true)]
    Markdown,
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => dispatch(cli).unwrap_or_else(|error| {
            out::notes(&error.lines());
            error.exit()
        }),
        Err(problem) => ending::usage(&problem, "`rankguard COMMAND --help` lists the options"),
    };
    ending::last(exit).into()
}

fn dispatch(cli: Cli) -> Result<CommandExit, CliError> {
    let name = match &cli.command {
        Command::Dataset(_) => "dataset",
        Command::Replay(_) => "replay",
        Command::Simulate(_) => "simulate",
        Command::Study(_) => "study",
        Command::Bench(_) => "bench",
        Command::ManPages { .. } | Command::Markdown => "documents",
    };
    let _work = WorkNote::start(format!("running {name}"));
    match cli.command {
        Command::Dataset(args) => dataset::run(args),
        Command::Replay(args) => replay::run(&args),
        Command::Bench(args) => bench_replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Study(args) => study::run(args),
        Command::ManPages { folder } => man_pages(&folder),
        Command::Markdown => print_reference(),
    }
}

/// Writes the manual pages of the commands, without that of the whole program, which the calling program writes.
fn man_pages(folder: &Path) -> Result<CommandExit, CliError> {
    let parts = folder.join(".history-pages");
    let written = std::fs::create_dir_all(&parts)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &parts))
        .and_then(|()| std::fs::remove_file(parts.join("rankguard.1")))
        .and_then(|()| move_files(&parts, folder))
        .and_then(|()| std::fs::remove_dir(&parts));
    written.map_err(|problem| {
        let what = format!("cannot write manual pages into {}", folder.display());
        CliError::failure(what, "check the free space and the permissions of this user").because(problem)
    })?;
    Ok(CommandExit::Fine)
}

/// Prints the part of the command reference with these commands.
fn print_reference() -> Result<CommandExit, CliError> {
    let reference = markdown::reference(&Cli::command()).map_err(|problem| {
        CliError::failure(
            "cannot write the command reference",
            "add the example to history/src/markdown.rs",
        )
        .because(problem)
    })?;
    out::text(&reference);
    Ok(CommandExit::Fine)
}

fn move_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
