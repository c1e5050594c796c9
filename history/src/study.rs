//! `rankguard study`: questions to failure history, and published figures computed again.

mod ask;
mod page;
mod print;
mod reproduce;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rankguard_console::FormatArgs;
use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_studies::{Options, StudyError};

use crate::input::Data;

/// Questions to failure history.
#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List what can be asked, and which tables each question reads.
    Ls(FormatArgs),
    /// Ask one question of a data set. Published figures that belong to it stand beside what was computed.
    Run {
        /// Its name, as `study ls` lists it.
        name: String,
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        narrow: Narrow,
        /// Write its picture here, as SVG or PNG.
        #[arg(long, value_name = "FILE.svg|FILE.png")]
        plot: Option<PathBuf>,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Compute every published figure that is known of a data set, or of each below a folder. Exit 1 where one differs.
    Reproduce {
        /// A data set, or a folder of them.
        #[arg(long, value_name = "PATH")]
        data: PathBuf,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Ask every question that the data can answer and write one HTML page that needs nothing else.
    Report {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        narrow: Narrow,
        /// The page.
        #[arg(long, value_name = "FILE.html")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Narrow {
    /// Nodes or devices in all; wanted where the data does not state it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    population: Option<u64>,
    /// The column to group by.
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// The window of bursts, repeats and neighbours, seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    window: Option<f64>,
    /// What durations of 0 become in fits, seconds; without it they are dropped.
    #[arg(long, value_name = "S", value_parser = seconds)]
    zeros: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    seconds.ok_or_else(|| "seconds above 0 are wanted".to_owned())
}

impl From<Narrow> for Options {
    fn from(narrow: Narrow) -> Self {
        Self {
            population: narrow.population,
            by: narrow.by,
            window_s: narrow.window,
            zeros_s: narrow.zeros,
        }
    }
}

pub(crate) fn run(args: StudyArgs) -> Result<Exit, CliError> {
    match args.action {
        Action::Ls(format) => {
            ask::list(format.format);
            Ok(Exit::Fine)
        }
        Action::Run {
            name,
            data,
            narrow,
            plot,
            format,
        } => ask::ask(&name, &data, &narrow.into(), plot.as_deref(), format.format),
        Action::Reproduce { data, format } => reproduce::reproduce(&data, format.format),
        Action::Report { data, narrow, out } => page::page(&data, &narrow.into(), &out),
    }
}

fn refused(study: &str, problem: StudyError) -> CliError {
    let hint = problem.hint();
    CliError::failure(format!("the study {study} has no answer"), hint).because(problem)
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|problem| {
        CliError::failure(
            format!("cannot write {}", file.display()),
            "is there such a folder, and room?",
        )
        .because(problem)
    })
}
