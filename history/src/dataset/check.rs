//! `dataset check`: reads one data set, or each in a folder of several.

use std::collections::BTreeMap;

use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::{OutputFormat, out};
use rankguard_datasets::{ContainedFolder, Dataset, several};
use serde::Serialize;

use super::{DatasetInput, lost};

/// Result of a check, as JSON.
#[derive(Serialize)]
struct CheckReport<'a> {
    source: &'static str,
    title: &'static str,
    licence: &'static str,
    clock: &'a rankguard_datasets::ClockRule,
    window: Option<(f64, f64)>,
    population: Option<rankguard_datasets::Population>,
    tables: BTreeMap<&'static str, u64>,
    files: &'a [rankguard_datasets::FileRead],
    rows_lost: u64,
    problems: &'a rankguard_datasets::ProblemSummary,
}

pub(super) fn run(input: &DatasetInput, format: OutputFormat) -> Result<CommandExit, CliError> {
    // A path that cannot be listed cannot be opened either, which gives the better error.
    let inside = if input.mapping.is_absent() {
        several(&input.path).unwrap_or_default()
    } else {
        Vec::new()
    };
    if !inside.is_empty() {
        return each(&inside, format);
    }
    let data = input.open()?;
    let checked = CheckReport {
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
        OutputFormat::Json => out::json(&checked),
        OutputFormat::Jsonl => out::json_line(&checked),
        OutputFormat::Csv => listing::print(format, &data.files, FILES),
        OutputFormat::Table => tell(&data),
    }
    Ok(lost(&data))
}

const FILES: &[TableColumn<rankguard_datasets::FileRead>] = &[
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
        None => line("population", "not stated; nodes without failures are unknown"),
    }
    for (table, rows) in &data.rows {
        line("table", &format!("{:<9} {rows} rows", table.name()));
    }
    out::line("");
    out::text(&listing::table(&data.files, FILES));
    for (kind, group) in &data.problems.kinds {
        out::line("");
        out::line(&format!("{kind}: {}, rows lost {}", group.count, group.rows_lost));
        // The other formats contain all of them.
        for problem in group.first.iter().take(3) {
            let field = if problem.field.is_empty() {
                String::new()
            } else {
                format!(":{}", problem.field)
            };
            let text = format!("  {}:{}{field}: {}", problem.file, problem.line, problem.what);
            out::line(&text);
        }
    }
}

/// Result for one data set in a folder of several.
#[derive(Debug, Serialize)]
struct FolderSummary {
    folder: String,
    source: Option<&'static str>,
    files: usize,
    tables: BTreeMap<&'static str, u64>,
    rows_lost: u64,
    /// Number of problems of each kind.
    problems: BTreeMap<&'static str, u64>,
    /// Reason if it was not read.
    unread: Option<String>,
}

const SUMMARIES: &[TableColumn<FolderSummary>] = &[
    ("folder", |one| one.folder.clone()),
    ("source", |one| one.source.unwrap_or_default().to_owned()),
    ("files", |one| one.files.to_string()),
    ("rows", |one| match &one.unread {
        Some(why) => why.clone(),
        None => counted(&one.tables),
    }),
    ("lost", |one| one.rows_lost.to_string()),
    ("problems", |one| counted(&one.problems)),
];

/// Formats names with their counts in one line.
fn counted(counts: &BTreeMap<&'static str, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    each.join(", ")
}

/// Checks each folder in turn and prints one line for each.
fn each(inside: &[ContainedFolder], format: OutputFormat) -> Result<CommandExit, CliError> {
    let summaries: Vec<FolderSummary> = inside.iter().map(summary).collect();
    listing::print(format, &summaries, SUMMARIES);
    let unread = summaries.iter().filter(|one| one.unread.is_some()).count();
    out::note(&format!(
        "{} data sets, {unread} folders not read; `rankguard dataset check FOLDER` shows details of one",
        summaries.len() - unread
    ));
    let lost = summaries.iter().any(|one| one.rows_lost > 0);
    Ok(if lost { CommandExit::Finding } else { CommandExit::Fine })
}

fn summary(inside: &ContainedFolder) -> FolderSummary {
    let folder = inside.path.file_name().unwrap_or_default().to_string_lossy();
    let mut summary = FolderSummary {
        folder: folder.into_owned(),
        source: inside.source.map(|source| source.name),
        files: 0,
        tables: BTreeMap::new(),
        rows_lost: 0,
        problems: BTreeMap::new(),
        unread: None,
    };
    match rankguard_datasets::open(&inside.path) {
        Ok(data) => {
            summary.files = data.files.len();
            summary.tables = data.rows.iter().map(|(table, rows)| (table.name(), *rows)).collect();
            summary.rows_lost = data.problems.rows_lost();
            let kinds = data.problems.kinds.iter();
            summary.problems = kinds.map(|(kind, group)| (*kind, group.count)).collect();
        }
        Err(rankguard_datasets::Error::Unknown { .. }) => {
            summary.unread = Some("unknown format".to_owned());
        }
        Err(problem) => summary.unread = Some(problem.to_string()),
    }
    summary
}
