//! `rankguard shell completions|man`: files that a package installs next to the program, generated from the commands.
//!
//! The options of `dataset`, `study`, `replay` and `simulate` belong to the program of the history commands and are not
//! completed here.

#[cfg(test)]
mod hints;
mod man;
mod markdown;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use clap_complete::Shell;
use rankguard_console::command_table::CommandReference;

use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

/// Name of the program.
const PROGRAM: &str = "rankguard";

#[derive(Debug, Clone, Args)]
pub(crate) struct ShellArgs {
    #[command(subcommand)]
    pub(crate) what: ShellAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ShellAction {
    /// Print a completion script for a shell to standard output
    Completions {
        /// Shell of the script
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write manual pages, one per command
    Man {
        /// Output directory for the pages; created if missing
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print the command reference (docs/cli.md) to standard output
    Markdown,
}

/// Writes the output for the given command tree.
pub(crate) fn run(args: &ShellArgs, mut program: clap::Command) -> Result<CommandExit, CliError> {
    match &args.what {
        ShellAction::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut program, PROGRAM, &mut script);
            out::bytes(&script);
        }
        ShellAction::Man { out: folder } => {
            let has_history = pages(program, folder).map_err(|problem| {
                let what = format!("cannot write manual pages into {}", folder.display());
                CliError::failure(what, "select another folder with --out").because(problem)
            })?;
            if !has_history {
                out::note(
                    "pages of dataset, study, replay and simulate are missing: rankguard-history is not in the folder of this program",
                );
            }
            out::line(&folder.join("rankguard.1").display().to_string());
        }
        ShellAction::Markdown => {
            let reference = reference(&program).map_err(|problem| {
                let hint = "is rankguard-history of the same version?";
                CliError::failure("cannot write the command reference", hint).because(problem)
            })?;
            if reference.history.is_empty() {
                out::note("commands of rankguard-history are missing: it is not beside this program");
            }
            out::text(&reference.render());
        }
    }
    Ok(CommandExit::Fine)
}

/// Writes the pages; returns false if those of the history commands are missing, which the history program generates.
fn pages(program: clap::Command, folder: &Path) -> std::io::Result<bool> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(program, folder)?;
    let has_history = super::history::write_man_pages(folder)?;
    man::add_values(folder)?;
    Ok(has_history)
}

/// Returns the command reference; its history part is empty if the history program is not installed.
fn reference(program: &clap::Command) -> std::io::Result<CommandReference> {
    let main = markdown::reference(program).map_err(std::io::Error::other)?;
    let history = super::history::command_reference()?.unwrap_or_default();
    Ok(CommandReference { main, history })
}
