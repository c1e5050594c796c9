//! `rankguard study`: questions to failure history, and published figures computed again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::listing::{self, Column};
use rankguard_console::{Format, FormatArgs, out};
use rankguard_datasets::Dataset;
use rankguard_studies::{Cell, Figure, Options, Outcome, Study, StudyError, Table, figures, report, studies};
use serde::Serialize;

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
        /// Write its picture here, as SVG.
        #[arg(long, value_name = "FILE.svg")]
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
struct Data {
    /// A file or folder of data, recognised by what it holds.
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// A TOML file that says which column of a CSV, JSON-lines or Parquet file is which of a table.
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
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
            list(format.format);
            Ok(Exit::Fine)
        }
        Action::Run {
            name,
            data,
            narrow,
            plot,
            format,
        } => ask(&name, &data, &narrow.into(), plot.as_deref(), format.format),
        Action::Reproduce { data, format } => reproduce(&data, format.format),
        Action::Report { data, narrow, out } => page(&data, &narrow.into(), &out),
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    needs: &'static str,
}

fn list(format: Format) {
    let all: Vec<Listed> = studies()
        .iter()
        .map(|study| Listed {
            name: study.name,
            about: study.about,
            needs: study.needs,
        })
        .collect();
    const COLUMNS: &[Column<Listed>] = &[
        ("name", |study| study.name.to_owned()),
        ("about", |study| study.about.to_owned()),
        ("needs", |study| study.needs.to_owned()),
    ];
    listing::print(format, &all, COLUMNS);
}

fn open(path: &Path, mapping: Option<&Path>) -> Result<Dataset, CliError> {
    let opened = match mapping {
        Some(mapping) => rankguard_datasets::open_mapped(path, mapping),
        None => rankguard_datasets::open(path),
    };
    opened.map_err(|problem| {
        CliError::failure(
            format!("cannot study {}", path.display()),
            "`rankguard dataset ls` lists what is known; a file of one's own wants --mapping FILE",
        )
        .because(problem)
    })
}

fn refused(study: &str, problem: StudyError) -> CliError {
    let hint = problem.hint();
    CliError::failure(format!("the study {study} has no answer"), hint).because(problem)
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    outcome: Outcome,
    figures: Vec<Figure>,
}

fn ask(name: &str, from: &Data, options: &Options, plot: Option<&Path>, format: Format) -> Result<Exit, CliError> {
    let Some(study) = studies().iter().find(|study| study.name == name) else {
        return Err(CliError::usage(
            format!("there is no study {name:?}"),
            "`rankguard study ls` lists them",
        ));
    };
    let data = open(&from.data, from.mapping.as_deref())?;
    let outcome = (study.run)(&data, options).map_err(|problem| refused(name, problem))?;
    let figures = figures(&data).map_err(|problem| refused(name, problem))?;
    let figures: Vec<Figure> = figures.into_iter().filter(|figure| figure.study == name).collect();
    if let Some(file) = plot {
        let Some(picture) = outcome.plots.first() else {
            return Err(CliError::usage(
                format!("the study {name} has no picture"),
                "leave --plot out",
            ));
        };
        write(file, &picture.svg())?;
    }
    match format {
        Format::Json => out::json(&Answer { outcome, figures }),
        Format::Jsonl => out::json_line(&Answer { outcome, figures }),
        Format::Csv => outcome.tables.iter().for_each(csv),
        Format::Table => show(&outcome, &figures),
    }
    Ok(Exit::Fine)
}

fn show(outcome: &Outcome, figures: &[Figure]) {
    out::line(&format!("{} of {}", outcome.study, outcome.source));
    out::line(&format!("definition: {}", outcome.definition));
    out::line(&format!(
        "population: {}",
        outcome.population.as_deref().unwrap_or("unknown")
    ));
    let window = outcome
        .window
        .map(|(from, to)| format!("{from:.0} to {to:.0} s, {:.2} days", (to - from) / 86_400.0));
    out::line(&format!("window:     {}", window.as_deref().unwrap_or("unknown")));
    out::line(&format!("clock:      {}", outcome.clock));
    for table in &outcome.tables {
        out::line(&format!("\n{}", table.title));
        let rows: Vec<Vec<String>> = std::iter::once(table.columns.iter().map(|name| name.to_uppercase()).collect())
            .chain(
                table
                    .rows
                    .iter()
                    .map(|row| row.iter().map(ToString::to_string).collect()),
            )
            .collect();
        aligned(&rows);
    }
    if !figures.is_empty() {
        out::line("\npublished figures");
        out::text(&listing::table(figures, FIGURES));
    }
    outcome
        .problems
        .iter()
        .for_each(|problem| out::line(&format!("problem: {}", listing::plain(problem))));
}

/// Columns of as many characters as their longest cell, two apart; foreign names may hold control characters.
fn aligned(rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| listing::plain(cell)).collect())
        .collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, wide)| format!("{cell:wide$}"));
        out::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn csv(table: &Table) {
    let cell = |text: String| {
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }
    };
    out::line(
        &table
            .columns
            .iter()
            .map(|name| cell((*name).to_owned()))
            .collect::<Vec<_>>()
            .join(","),
    );
    for row in &table.rows {
        let cells = row.iter().map(|value| match value {
            Cell::Number(x) => x.to_string(),
            Cell::Absent => String::new(),
            value => cell(value.to_string()),
        });
        out::line(&cells.collect::<Vec<_>>().join(","));
    }
}

const FIGURES: &[Column<Figure>] = &[
    ("source", |figure| figure.source.to_owned()),
    ("figure", |figure| figure.name.clone()),
    ("published", |figure| {
        figure.published.clone().unwrap_or_else(|| "-".to_owned())
    }),
    ("computed", |figure| Cell::from(figure.computed).to_string()),
    ("verdict", |figure| {
        let verdict = match (figure.agrees(), &figure.published) {
            (true, Some(_)) => "equal",
            (true, None) => "computed",
            (false, _) => "differs",
        };
        verdict.to_owned()
    }),
    ("definition", |figure| figure.definition.to_owned()),
];

/// A data set, or every data set directly below a folder that holds several.
fn below(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let listed = std::fs::read_dir(path).map_err(|problem| {
        CliError::failure(
            format!("cannot list {}", path.display()),
            "give a folder of one or more data sets",
        )
        .because(problem)
    })?;
    let mut folders: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    let name = |path: &PathBuf| rankguard_datasets::recognise(path).map(|source| source.name);
    let sources: BTreeSet<&str> = folders.iter().filter_map(name).collect();
    Ok(if sources.len() > 1 {
        folders
    } else {
        vec![path.to_owned()]
    })
}

fn reproduce(path: &Path, format: Format) -> Result<Exit, CliError> {
    let mut all = Vec::new();
    for folder in below(path)? {
        let Some(source) = rankguard_datasets::recognise(&folder) else {
            out::note(&format!("{}: nothing that is known here", folder.display()));
            continue;
        };
        let data = open(&folder, None)?;
        let found = figures(&data).map_err(|problem| refused("reproduce", problem))?;
        if found.is_empty() {
            out::note(&format!(
                "{}: no published figures are known of {}",
                folder.display(),
                source.name
            ));
        }
        all.extend(found);
    }
    if all.is_empty() {
        return Err(CliError::failure(
            format!(
                "nothing in {} has published figures that are known here",
                path.display()
            ),
            "give one of the published data sets, or a folder of them",
        ));
    }
    listing::print(format, &all, FIGURES);
    let differing = all.iter().filter(|figure| !figure.agrees()).count();
    out::note(&format!("{} figures, {differing} differ", all.len()));
    Ok(if differing == 0 { Exit::Fine } else { Exit::Finding })
}

fn page(from: &Data, options: &Options, file: &Path) -> Result<Exit, CliError> {
    let path = from.data.as_path();
    let data = open(path, from.mapping.as_deref())?;
    let mut outcomes = Vec::new();
    let ask = |study: &Study| (study.run)(&data, options);
    for study in studies() {
        match ask(study) {
            Ok(outcome) => outcomes.push(outcome),
            Err(problem) => out::note(&format!("without {}: {problem}", study.name)),
        }
    }
    if outcomes.is_empty() {
        return Err(CliError::failure(
            format!("{} answers none of the studies", path.display()),
            "`rankguard study ls` says what each needs",
        ));
    }
    let figures = figures(&data).map_err(|problem| refused("report", problem))?;
    write(file, &report(data.title, &outcomes, &figures))?;
    out::note(&format!(
        "{} studies, {} figures: {}",
        outcomes.len(),
        figures.len(),
        file.display()
    ));
    Ok(Exit::Fine)
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
