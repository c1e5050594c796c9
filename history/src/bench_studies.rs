//! `rankguard bench studies`: the same tables through the studies and through pandas, from the same files, in one run.
//!
//! Generated failures and log events of any number, and data sets given on the command line, are written as CSV. Both
//! sides read that file and run each study; the answers are compared, number by number, before the times are.

mod cost;
mod pandas;
mod synthetic_tables;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use rankguard_console::FormatArgs;
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::out;
use rankguard_datasets::{Dataset, OutputFormat, TableKind};
use rankguard_studies::{ResultCell, StudyOptions, StudyResult, studies};
use serde::Serialize;

use crate::input::MappingArgs;
use cost::TimeSpent;
use pandas::{NameEncoding, PandasAnswer};

/// Lower bound of any reader: one pass over the file's bytes that counts lines, on one core.
const BYTES: &str = "plain bytes";
/// Row of the reading of the table.
const READ: &str = "read the table";
/// Row of reading plus all studies, the time that a user waits.
const ALL: &str = "all together";
/// Required speed-up over pandas.
const AIM: f64 = 20.0;
/// Relative tolerance of answers: sums differ in order, and scipy stops its search early.
const CLOSE: f64 = 1e-9;
const CLOSE_FITS: f64 = 2e-3;

/// Arguments of `rankguard bench studies`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StudiesArgs {
    /// Number of generated failures; half as many log events
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=40_000_000))]
    failures: u64,
    /// Additional data set, a file or folder; may be repeated
    #[arg(long, value_name = "PATH")]
    data: Vec<PathBuf>,
    /// Python interpreter with pandas and scipy
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Number of runs of each measurement; the medians are reported
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    times: u64,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result of one study on one table.
#[derive(Debug, Serialize)]
struct StudyTiming {
    data: String,
    study: &'static str,
    rows: u64,
    #[serde(flatten)]
    spent: TimeSpent,
    /// pandas with names as strings, its default.
    pandas: Option<PandasTiming>,
    /// pandas with names as categories, each stored once, like the tables here.
    categories: Option<PandasTiming>,
}

/// Cost of pandas for the same study.
#[derive(Debug, Clone, Copy, Serialize)]
struct PandasTiming {
    #[serde(flatten)]
    spent: TimeSpent,
    /// Ratio of wall time and of processor time.
    ratio: f64,
    ratio_cpu: f64,
    /// True if both answers are equal within the tolerance.
    equal: bool,
}

impl PandasTiming {
    fn new(ours: TimeSpent, spent: TimeSpent, equal: bool) -> Self {
        Self {
            spent,
            ratio: spent.seconds / ours.seconds.max(1e-9),
            ratio_cpu: spent.cpu_s / ours.cpu_s.max(1e-9),
            equal,
        }
    }
}

impl StudyTiming {
    fn beside(&self) -> impl Iterator<Item = &PandasTiming> {
        self.pandas.iter().chain(&self.categories)
    }

    fn is_study(&self) -> bool {
        ![BYTES, READ, ALL].contains(&self.study)
    }
}

fn timing(pandas: Option<PandasTiming>, format: impl Fn(PandasTiming) -> String) -> String {
    pandas.map_or(String::new(), format)
}

const COLUMNS: &[TableColumn<StudyTiming>] = &[
    ("data", |row| row.data.clone()),
    ("study", |row| row.study.to_owned()),
    ("rows", |row| row.rows.to_string()),
    ("seconds", |row| format!("{:.5}", row.spent.seconds)),
    ("cpu s", |row| format!("{:.5}", row.spent.cpu_s)),
    ("pandas s", |row| {
        timing(row.pandas, |b| format!("{:.4}", b.spent.seconds))
    }),
    ("times", |row| timing(row.pandas, |b| format!("{:.1}", b.ratio))),
    ("times cpu", |row| timing(row.pandas, |b| format!("{:.1}", b.ratio_cpu))),
    ("categories s", |row| {
        timing(row.categories, |b| format!("{:.4}", b.spent.seconds))
    }),
    ("times", |row| timing(row.categories, |b| format!("{:.1}", b.ratio))),
    ("times cpu", |row| {
        timing(row.categories, |b| format!("{:.1}", b.ratio_cpu))
    }),
    ("same answer", |row| {
        let answers = match row
            .beside()
            .map(|beside| beside.equal)
            .reduce(|one, other| one && other)
        {
            None => "",
            Some(true) => "yes",
            Some(false) => "NO",
        };
        answers.to_owned()
    }),
];

/// Temporary folder of one run, removed on drop.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new() -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("rankguard-bench-studies-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|problem| unwritten(&path, problem))?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unwritten(path: &Path, problem: impl std::fmt::Display) -> CliError {
    refused("write", path, problem)
}

fn refused(what: &str, path: &Path, problem: impl std::fmt::Display) -> CliError {
    let hint = "check the free space of the temporary folder, and that no other program clears it";
    CliError::failure(format!("cannot {what} {}", path.display()), hint).because(problem.to_string())
}

pub(crate) fn run(args: &StudiesArgs) -> Result<CommandExit, CliError> {
    let scratch = ScratchFolder::new()?;
    let mut rows = Vec::new();
    for table in [TableKind::Failures, TableKind::Events] {
        let path = scratch.0.join(format!("{}.csv", table.name()));
        synthetic_tables::write(&path, table, args.failures).map_err(|problem| unwritten(&path, problem))?;
        compare("made up", table, &path, synthetic_tables::NODES, args, &mut rows)?;
    }
    for from in &args.data {
        let data = MappingArgs::default().open(from)?;
        for table in [TableKind::Failures, TableKind::Outages] {
            if !data.has(table) {
                continue;
            }
            let path = scratch.0.join(format!("{}-{}.csv", data.source, table.name()));
            let written = std::fs::File::create(&path)
                .map_err(|problem| problem.to_string())
                .and_then(|file| {
                    let sink = std::io::BufWriter::new(file);
                    data.export(table, OutputFormat::Csv, sink)
                        .map_err(|problem| problem.to_string())
                });
            written.map_err(|problem| unwritten(&path, problem))?;
            let population = data.population.map_or(synthetic_tables::NODES, |all| all.count);
            compare(data.source, table, &path, population, args, &mut rows)?;
        }
    }
    listing::print(args.format.format, &rows, COLUMNS);
    let studies = || rows.iter().filter(|row| row.is_study());
    let slow = studies()
        .filter(|row| row.beside().any(|beside| beside.ratio < AIM))
        .count();
    out::note(&format!(
        "aim: each study {AIM} times as fast as pandas, however it holds names; {slow} of {} are below it; studies run on one core here, tables are read on all; what is known from reading, counts of names and the window, is paid for there; medians of {}",
        studies().count(),
        args.times
    ));
    let differs = rows.iter().any(|row| row.beside().any(|beside| !beside.equal));
    Ok(if differs {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    })
}

/// Runs both sides on one file.
fn compare(
    name: &str,
    table: TableKind,
    path: &Path,
    population: u64,
    args: &StudiesArgs,
    rows: &mut Vec<StudyTiming>,
) -> Result<(), CliError> {
    let mapping = path.with_extension("toml");
    let header = synthetic_tables::header(path).map_err(|problem| refused("read", path, problem))?;
    std::fs::write(&mapping, synthetic_tables::mapping(table, &header, population))
        .map_err(|problem| unwritten(&mapping, problem))?;
    let times = args.times as usize;
    let (found, plain) = TimeSpent::on(times, || bytes_and_lines(path));
    let found = found.map_err(|problem| refused("read", path, problem))?;
    let mapping = MappingArgs::of(mapping);
    let (data, read) = TimeSpent::on(times, || mapping.open(path));
    let data = data?;
    let count = data.rows.get(&table).copied().unwrap_or(0);
    let mut ours = vec![(BYTES, plain, found.to_vec()), (READ, read, vec![count as f64])];
    ours.extend(of_table(table).iter().filter_map(|study| answer(study, &data, times)));
    let [texts, categories] = [NameEncoding::Texts, NameEncoding::Categories].map(|names| {
        pandas::ask(&args.python, names, table.name(), path, population, times).unwrap_or_else(|why| {
            out::note(&format!("ABSENT: pandas beside it was not measured: {why}"));
            Vec::new()
        })
    });
    let mut row = |study, spent, pandas, categories| {
        rows.push(StudyTiming {
            data: name.to_owned(),
            study,
            rows: count,
            spent,
            pandas,
            categories,
        });
    };
    for (study, spent, values) in &ours {
        let beside = |answers: &[PandasAnswer]| {
            let other = answers.iter().find(|answer| answer.study == *study)?;
            let equal = same(values, &other.values, if *study == "fits" { CLOSE_FITS } else { CLOSE });
            Some(PandasTiming::new(*spent, other.spent, equal))
        };
        row(study, *spent, beside(&texts), beside(&categories));
    }
    let whole = ours.iter().skip(1).map(|(_, spent, _)| *spent).sum();
    let beside = |answers: &[PandasAnswer]| {
        let all = answers.iter().skip(1).map(|answer| answer.spent).sum();
        Some(PandasTiming::new(whole, all, true)).filter(|_| !answers.is_empty())
    };
    row(ALL, whole, beside(&texts), beside(&categories));
    Ok(())
}

/// Returns the length and the number of lines of a file.
fn bytes_and_lines(path: &Path) -> std::io::Result<[f64; 2]> {
    let mut file = std::fs::File::open(path)?;
    let mut block = vec![0; 1 << 18];
    let mut bytes = 0;
    let mut lines = 0;
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok([bytes as f64, lines as f64]);
        }
        bytes += read;
        lines += memchr::memchr_iter(b'\n', &block[..read]).count();
    }
}

/// Returns the studies that read a table and have a peer implementation.
fn of_table(table: TableKind) -> &'static [&'static str] {
    match table {
        TableKind::Failures => &["mix", "mtbf", "repair", "bursts", "correlated", "lemons", "fits"],
        TableKind::Events => &["coalesce"],
        _ => &["fits"],
    }
}

/// Runs a study; returns its cost and the numbers of its answer, or `None` if the data does not suffice.
fn answer(name: &'static str, data: &Dataset, times: usize) -> Option<(&'static str, TimeSpent, Vec<f64>)> {
    let study = studies().iter().find(|study| study.name == name)?;
    let (outcome, spent) = TimeSpent::on(times, || (study.run)(data, &StudyOptions::default()));
    Some((name, spent, values(name, &outcome.ok()?)))
}

/// Returns the numbers that the peer computes too, in its order.
fn values(name: &str, outcome: &StudyResult) -> Vec<f64> {
    let column = |table: usize, at: usize| {
        outcome
            .tables
            .get(table)
            .into_iter()
            .flat_map(move |table| table.rows.iter().filter_map(move |row| number(row.get(at)?)))
    };
    match name {
        "mix" | "bursts" => column(0, 1).collect(),
        "mtbf" => [4, 5, 6].into_iter().flat_map(|at| column(0, at).take(1)).collect(),
        "repair" => outcome.tables[0]
            .rows
            .iter()
            .flat_map(|row| [1, 2, 3, 4, 6].map(|at| row.get(at).and_then(number).unwrap_or(0.0)))
            .collect(),
        "correlated" => column(0, 2).collect(),
        "lemons" => column(0, 2).chain(column(1, 1)).collect(),
        "coalesce" => outcome.tables[0].rows.iter().flat_map(|row| row[1..].iter().filter_map(number)).collect(),
        // The best family comes first; the peer has a fixed order.
        _ => outcome
            .tables
            .iter()
            .flat_map(|table| {
                ["exponential", "Weibull", "lognormal", "gamma"].into_iter().flat_map(move |family| {
                    let is = |row: &&Vec<ResultCell>| matches!(row.first(), Some(ResultCell::Text(name)) if name.eq_ignore_ascii_case(family));
                    let row = table.rows.iter().find(is);
                    row.into_iter().flat_map(|row| row[1..3].iter().filter_map(number))
                })
            })
            .collect(),
    }
}

fn number(cell: &ResultCell) -> Option<f64> {
    match cell {
        ResultCell::Count(count) => Some(*count as f64),
        ResultCell::Number(value) => Some(*value),
        ResultCell::Text(_) | ResultCell::Absent => None,
    }
}

fn same(ours: &[f64], theirs: &[f64], close: f64) -> bool {
    let near = |(one, other): (&f64, &f64)| (one - other).abs() <= close * one.abs().max(other.abs()) + 1e-12;
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_the_same_only_where_every_number_is() {
        assert!(same(&[1.0, 2e9], &[1.0, 2e9 + 0.5], CLOSE));
        assert!(!same(&[1.0, 2e9], &[1.0, 2e9 + 5.0], CLOSE));
        assert!(!same(&[1.0], &[1.0, 2.0], CLOSE));
        assert!(!same(&[f64::NAN], &[1.0], CLOSE));
    }
}
