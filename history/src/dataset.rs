//! `rankguard dataset`: what is known of published failure data, and one's own data checked, imported and exported.

mod export;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::listing::{self, Column};
use rankguard_console::{Format, FormatArgs, out};
use rankguard_datasets::{Dataset, Error, Source, sources};
use serde::Serialize;

/// Published failure data and one's own.
#[derive(Debug, Args)]
pub(crate) struct DatasetArgs {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the data sets and formats that are known here, with licence and citation.
    Ls(FormatArgs),
    /// Tell all that is known of one: licence, citation, clock, traps.
    Info {
        /// Its name, as `dataset ls` lists it.
        name: String,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Read a folder or file, recognised by what it holds: rows, problems, digests, tables. Exit 1 where rows are lost.
    Check {
        #[command(flatten)]
        input: Input,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Read a folder or file and write its tables as Parquet: OUT/table=NAME/part-0.parquet.
    Import {
        #[command(flatten)]
        input: Input,
        /// The folder to write to.
        #[arg(long)]
        out: PathBuf,
    },
    /// Read a folder or file and write one of its tables, or its events as evidence that `rankguard replay` reads.
    Export {
        #[command(flatten)]
        input: Input,
        /// The table: jobs, attempts, nodes, failures, outages, capacity, samples or events.
        #[arg(long, required_unless_present = "evidence")]
        table: Option<String>,
        /// Events, or failures where there are none, as evidence in order of time: JSON lines for `rankguard replay`.
        #[arg(long, conflicts_with_all = ["table", "shape"])]
        evidence: bool,
        /// In what form.
        #[arg(long = "as", value_enum, default_value = "csv")]
        shape: As,
        /// The file to write to; standard output where absent.
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Input {
    /// A folder or a file.
    path: PathBuf,
    /// A TOML file that says which column of a CSV, JSON-lines or Parquet file is which of a table.
    #[arg(long)]
    mapping: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum As {
    Csv,
    Jsonl,
    Parquet,
}

/// Runs the command.
pub(crate) fn run(args: DatasetArgs) -> Result<Exit, CliError> {
    match args.action {
        Action::Ls(format) => {
            let known: Vec<Known> = sources().iter().map(Known::new).collect();
            listing::print(format.format, &known, LISTED);
            Ok(Exit::Fine)
        }
        Action::Info { name, format } => info(&name, format.format),
        Action::Check { input, format } => check(&input, format.format),
        Action::Import { input, out } => import(&input, &out),
        Action::Export {
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

/// What is known of a source, for machines.
#[derive(Serialize)]
struct Known {
    name: &'static str,
    title: &'static str,
    licence: &'static str,
    citation: &'static str,
    home: &'static str,
    clock: &'static str,
    traps: &'static [&'static str],
}

impl Known {
    fn new(source: &Source) -> Self {
        Self {
            name: source.name,
            title: source.title,
            licence: source.licence,
            citation: source.citation,
            home: source.home,
            clock: source.clock,
            traps: source.traps,
        }
    }
}

const LISTED: &[Column<Known>] = &[
    ("name", |known| known.name.to_owned()),
    ("title", |known| known.title.to_owned()),
    ("licence", |known| known.licence.to_owned()),
    ("citation", |known| known.citation.to_owned()),
];

fn info(name: &str, format: Format) -> Result<Exit, CliError> {
    let Some(source) = sources().iter().find(|source| source.name == name) else {
        return Err(CliError::usage(
            format!("no data set is called {name}"),
            "`rankguard dataset ls` lists them",
        ));
    };
    let known = Known::new(source);
    if format != Format::Table {
        listing::print(format, &[known], LISTED);
        return Ok(Exit::Fine);
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
        out::line(&format!("mind     {trap}"));
    }
    Ok(Exit::Fine)
}

fn open(input: &Input) -> Result<Dataset, CliError> {
    let opened = match &input.mapping {
        Some(mapping) => rankguard_datasets::open_mapped(&input.path, mapping),
        None => rankguard_datasets::open(&input.path),
    };
    opened.map_err(|problem| match problem {
        Error::Unknown { .. } => CliError::failure(
            problem.to_string(),
            "`rankguard dataset ls` lists what is known; a file of one's own wants --mapping FILE",
        ),
        Error::Mapping(_) => CliError::failure(
            "the mapping cannot be used",
            "a mapping names `table`, `format` and, under [columns], a column of the file for each of the table's",
        )
        .because(problem),
        other => CliError::failure("the data cannot be read", "is the path right, and may it be read?").because(other),
    })
}

/// What a check tells, for machines.
#[derive(Serialize)]
struct Checked<'a> {
    source: &'static str,
    title: &'static str,
    licence: &'static str,
    clock: &'a rankguard_datasets::ClockRule,
    window: Option<(f64, f64)>,
    population: Option<rankguard_datasets::Population>,
    tables: std::collections::BTreeMap<&'static str, u64>,
    files: &'a [rankguard_datasets::FileRead],
    rows_lost: u64,
    problems: &'a rankguard_datasets::Problems,
}

fn check(input: &Input, format: Format) -> Result<Exit, CliError> {
    let data = open(input)?;
    let checked = Checked {
        source: data.source,
        title: data.title,
        licence: data.licence,
        clock: &data.clock,
        window: data.window,
        population: data.population,
        tables: data.rows.iter().map(|(table, rows)| (table.name(), *rows)).collect(),
        files: &data.files,
        rows_lost: data.problems.rows_lost(),
        problems: &data.problems,
    };
    match format {
        Format::Json => out::json(&checked),
        Format::Jsonl => out::json_line(&checked),
        Format::Csv => listing::print(format, &data.files, FILES),
        Format::Table => tell(&data),
    }
    Ok(lost(&data))
}

const FILES: &[Column<rankguard_datasets::FileRead>] = &[
    ("file", |file| file.path.clone()),
    ("what", |file| match file.role {
        "" => "not read".to_owned(),
        role => role.to_owned(),
    }),
    ("rows", |file| file.rows_read.to_string()),
    ("skipped", |file| file.rows_skipped.to_string()),
    ("bytes", |file| file.bytes.to_string()),
    ("sha256", |file| file.sha256.clone()),
];

fn tell(data: &Dataset) {
    let line = |heading: &str, text: &str| out::line(&format!("{heading:<11} {text}"));
    line("source", data.source);
    line("title", data.title);
    line("licence", data.licence);
    line("clock", &data.clock.0);
    if let Some((start, end)) = data.window {
        let dates = rankguard_datasets::date_of(start).zip(rankguard_datasets::date_of(end));
        let dates = dates.map_or(String::new(), |(from, to)| format!(", {from} to {to}"));
        line(
            "window",
            &format!("{start} to {end} s, {:.2} days{dates}", (end - start) / 86_400.0),
        );
    }
    match data.population {
        Some(all) => line("population", &format!("{} {} ({})", all.count, all.unit, all.from)),
        None => line("population", "not stated; the nodes that failed are not all there were"),
    }
    for (table, rows) in &data.rows {
        line("table", &format!("{:<9} {rows} rows", table.name()));
    }
    out::line("");
    out::text(&listing::table(&data.files, FILES));
    for (kind, group) in &data.problems.kinds {
        out::line(&format!("\n{kind}: {}, rows lost {}", group.count, group.rows_lost));
        // The rest stands in the forms for machines.
        for problem in group.first.iter().take(3) {
            let field = if problem.field.is_empty() {
                String::new()
            } else {
                format!(":{}", problem.field)
            };
            let text = format!("  {}:{}{field}: {}", problem.file, problem.line, problem.what);
            out::line(&listing::plain(&text));
        }
    }
}

fn import(input: &Input, folder: &Path) -> Result<Exit, CliError> {
    let data = open(input)?;
    let written = data.import(folder).map_err(|problem| {
        CliError::failure(
            "the tables cannot be written",
            "is there room, and may the folder be written to?",
        )
        .because(problem)
    })?;
    for path in &written {
        out::line(&path.display().to_string());
    }
    let lost = data.problems.rows_lost();
    if lost > 0 {
        out::note(&format!("{lost} rows were lost; `rankguard dataset check` says why"));
        return Ok(Exit::Finding);
    }
    Ok(Exit::Fine)
}

/// Whether rows were lost, as an exit.
fn lost(data: &Dataset) -> Exit {
    match data.problems.rows_lost() {
        0 => Exit::Fine,
        _ => Exit::Finding,
    }
}
