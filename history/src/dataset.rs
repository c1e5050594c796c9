//! `rankguard dataset`: catalogue of published failure data, and check, import and export of any data.

mod check;
mod export;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::{FormatArgs, OutputFormat, out};
use rankguard_datasets::{ColumnType, Dataset, SourceFormat, TableKind, sources};
use serde::Serialize;

use crate::input::MappingArgs;

/// Published failure data and your own.
#[derive(Debug, Args)]
pub(crate) struct DatasetArgs {
    #[command(subcommand)]
    action: DatasetAction,
}

#[derive(Debug, Subcommand)]
enum DatasetAction {
    /// List the known data sets and formats, with licence and citation.
    Ls(FormatArgs),
    /// Show one data set or format: licence, citation, clock, pitfalls.
    Info {
        /// Name from `dataset ls`.
        name: String,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Read a folder or file, recognised by content, and show rows, problems, digests, tables. A folder of data sets
    /// gives one line each. Exit 1 if rows are lost.
    Check {
        #[command(flatten)]
        input: DatasetInput,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Read a folder or file and write its tables as Parquet: OUT/table=NAME/part-0.parquet.
    Import {
        #[command(flatten)]
        input: DatasetInput,
        /// Output folder.
        #[arg(long)]
        out: PathBuf,
    },
    /// Read a folder or file and write one of its tables, or its events as evidence for `rankguard replay`.
    Export {
        #[command(flatten)]
        input: DatasetInput,
        /// Table to write: jobs, attempts, nodes, failures, outages, capacity, samples or events.
        #[arg(long, required_unless_present = "evidence")]
        table: Option<String>,
        /// Write events, or failures if there are none, as evidence in order of time: JSON lines for
        /// `rankguard replay`.
        #[arg(long, conflicts_with_all = ["table", "shape"])]
        evidence: bool,
        /// Output format.
        #[arg(long = "as", value_enum, default_value = "csv")]
        shape: TableFormat,
        /// Output file; default: standard output.
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct DatasetInput {
    /// Folder or file to read.
    #[arg(id = "data", value_name = "PATH")]
    path: PathBuf,
    #[command(flatten)]
    mapping: MappingArgs,
}

impl DatasetInput {
    fn open(&self) -> Result<Dataset, CliError> {
        self.mapping.open(&self.path)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TableFormat {
    Csv,
    Jsonl,
    Parquet,
}

pub(crate) fn run(args: DatasetArgs) -> Result<CommandExit, CliError> {
    match args.action {
        DatasetAction::Ls(format) => {
            let known: Vec<SourceListing> = sources().iter().map(SourceListing::new).collect();
            listing::print(format.format, &known, LISTED);
            Ok(CommandExit::Fine)
        }
        DatasetAction::Info { name, format } => info(&name, format.format),
        DatasetAction::Check { input, format } => check::run(&input, format.format),
        DatasetAction::Import { input, out } => import(&input, &out),
        DatasetAction::Export {
            input,
            table,
            evidence: _,
            shape,
            out,
        } => match table {
            Some(table) => export::table(&input, &table, shape, out.as_deref()),
            None => export::evidence(&input, out.as_deref()),
        },
    }
}

/// Description of a source, as JSON.
#[derive(Serialize)]
struct SourceListing {
    name: &'static str,
    title: &'static str,
    licence: &'static str,
    citation: &'static str,
    home: &'static str,
    clock: &'static str,
    traps: &'static [&'static str],
    #[serde(skip_serializing_if = "str::is_empty")]
    example: &'static str,
}

impl SourceListing {
    fn new(source: &SourceFormat) -> Self {
        Self {
            name: source.name,
            title: source.title,
            licence: source.licence,
            citation: source.citation,
            home: source.home,
            clock: source.clock,
            traps: source.traps,
            example: source.example,
        }
    }
}

const LISTED: &[TableColumn<SourceListing>] = &[
    ("name", |known| known.name.to_owned()),
    ("title", |known| known.title.to_owned()),
    ("licence", |known| known.licence.to_owned()),
    ("citation", |known| known.citation.to_owned()),
];

fn info(name: &str, format: OutputFormat) -> Result<CommandExit, CliError> {
    let Some(source) = sources().iter().find(|source| source.name == name) else {
        return Err(CliError::usage(
            format!("there is no data set {name}"),
            "`rankguard dataset ls` lists the data sets",
        ));
    };
    let known = SourceListing::new(source);
    if format != OutputFormat::Table {
        listing::print(format, &[known], LISTED);
        return Ok(CommandExit::Fine);
    }
    out::line(known.title);
    for (heading, text) in [
        ("licence", known.licence),
        ("cite", known.citation),
        ("from", known.home),
        ("clock", known.clock),
    ] {
        out::line(&format!("{heading:<8} {text}"));
    }
    for trap in known.traps {
        out::line(&format!("note     {trap}"));
    }
    if !known.example.is_empty() {
        out::line("");
        out::text(known.example);
        out::line("");
        for table in TableKind::ALL {
            out::line(&format!("{:<8} {}", table.name(), columns(table)));
        }
    }
    Ok(CommandExit::Fine)
}

/// Lists the columns of a table, with their type unless it is text.
fn columns(table: TableKind) -> String {
    let column = |(name, kind): &(&str, ColumnType)| match kind {
        _ if table.is_time(name) => format!("{name} (time)"),
        ColumnType::Number => format!("{name} (number)"),
        ColumnType::Text => (*name).to_owned(),
    };
    table.columns().iter().map(column).collect::<Vec<_>>().join(", ")
}

fn import(input: &DatasetInput, folder: &Path) -> Result<CommandExit, CliError> {
    let data = input.open()?;
    let written = data.import(folder).map_err(|problem| {
        CliError::failure(
            "cannot write the tables",
            "check the free space and the permissions of this user",
        )
        .because(problem)
    })?;
    for path in &written {
        out::line(&path.display().to_string());
    }
    // The tables do not contain the problems of the data, so report them here.
    for (kind, group) in &data.problems.kinds {
        out::note(&format!("{kind}: {}, rows lost {}", group.count, group.rows_lost));
    }
    if !data.problems.is_empty() {
        out::note("`rankguard dataset check PATH` shows the lines");
    }
    Ok(lost(&data))
}

/// Returns the exit status: a finding if rows were lost.
fn lost(data: &Dataset) -> CommandExit {
    match data.problems.rows_lost() {
        0 => CommandExit::Fine,
        _ => CommandExit::Finding,
    }
}
