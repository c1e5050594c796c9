//! `rankguard study`: studies of failure history, and reproduction of published figures.

mod ask;
mod page;
mod print;
mod reproduce;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rankguard_console::FormatArgs;
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_studies::{StudyError, StudyOptions};

use crate::input::DataArgs;

/// Studies of failure history.
#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    #[command(subcommand)]
    action: StudyAction,
}

#[derive(Debug, Subcommand)]
enum StudyAction {
    /// List the studies, and the tables that each reads.
    Ls(FormatArgs),
    /// Run one study on a data set. Its published figures are shown beside the computed ones.
    Run {
        /// Name from `study ls`.
        name: String,
        #[command(flatten)]
        data: DataArgs,
        #[command(flatten)]
        narrow: StudyOptionsArgs,
        /// Write a picture of the result, as SVG or PNG.
        #[arg(long, value_name = "FILE.svg|FILE.png")]
        plot: Option<PathBuf>,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Compute every known published figure of a data set, or of each below a folder. Exit 1 if one differs.
    Reproduce {
        /// Data set, or a folder of several.
        #[arg(long, value_name = "PATH")]
        data: PathBuf,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Run every study that the data permits and write one self-contained HTML page.
    Report {
        #[command(flatten)]
        data: DataArgs,
        #[command(flatten)]
        narrow: StudyOptionsArgs,
        /// Output file of the page.
        #[arg(long, value_name = "FILE.html")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
struct StudyOptionsArgs {
    /// Total number of nodes or devices; required if the data does not state it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    population: Option<u64>,
    /// Column to group by.
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// Window of bursts, repeats and neighbours in seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    window: Option<f64>,
    /// Replacement in seconds for durations of 0 in fits; default: they are dropped.
    #[arg(long, value_name = "S", value_parser = seconds)]
    zeros: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    seconds.ok_or_else(|| "expected seconds above 0".to_owned())
}

impl From<StudyOptionsArgs> for StudyOptions {
    fn from(narrow: StudyOptionsArgs) -> Self {
        Self {
            population: narrow.population,
            by: narrow.by,
            window_s: narrow.window,
            zeros_s: narrow.zeros,
        }
    }
}

pub(crate) fn run(args: StudyArgs) -> Result<CommandExit, CliError> {
    match args.action {
        StudyAction::Ls(format) => {
            ask::list(format.format);
            Ok(CommandExit::Fine)
        }
        StudyAction::Run {
            name,
            data,
            narrow,
            plot,
            format,
        } => ask::ask(&name, &data, &narrow.into(), plot.as_deref(), format.format),
        StudyAction::Reproduce { data, format } => reproduce::reproduce(&data, format.format),
        StudyAction::Report { data, narrow, out } => page::page(&data, &narrow.into(), &out),
    }
}

fn refused(study: &str, problem: StudyError) -> CliError {
    let hint = problem.hint();
    CliError::failure(format!("cannot run the study {study}"), hint).because(problem)
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|problem| {
        CliError::failure(
            format!("cannot write {}", file.display()),
            "check that the folder exists and has free space",
        )
        .because(problem)
    })
}
