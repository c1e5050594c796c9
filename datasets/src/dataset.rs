//! Opening: which source it is, its files in order, its tables.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use polars::prelude::{DataFrame, DataType, IntoLazy, LazyFrame, PlHashMap, col};
use serde::Serialize;

use crate::error::Error;
use crate::head::{Head, heads};
use crate::input::{Input, digest, unpacked};
use crate::load::Load;
use crate::problem::Problems;
use crate::source::Source;
use crate::sources::sources;
use crate::table::Table;

/// How times of a data set are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ClockRule(pub String);

impl fmt::Display for ClockRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many there were in all, failed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Population {
    /// How many.
    pub count: u64,
    /// Of what.
    pub unit: &'static str,
    /// Who says so.
    pub from: &'static str,
}

/// One file and what was read of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileRead {
    /// Relative to what was opened.
    pub path: String,
    /// What it is to the source; empty where it was not read.
    pub role: &'static str,
    /// Of the file as it lies there.
    pub sha256: String,
    /// Its length as it lies there.
    pub bytes: u64,
    /// Rows looked at, headers not counted.
    pub rows_read: u64,
    /// Rows that could not be used; the problems say why.
    pub rows_skipped: u64,
}

/// A column of texts of which many are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The different texts, in the order in which they come first.
    pub names: Vec<String>,
    /// Which of them each row has; none where the row has no text.
    pub of: Vec<Option<u32>>,
}

impl Labels {
    /// How many rows have each text, in the order of the names, and how many have none.
    pub fn counts(&self) -> (Vec<u64>, u64) {
        let (mut counts, mut none) = (vec![0; self.names.len()], 0);
        for label in &self.of {
            match label {
                Some(label) => counts[*label as usize] += 1,
                None => none += 1,
            }
        }
        (counts, none)
    }
}

/// A data set that was read.
#[derive(Clone)]
pub struct Dataset {
    /// The name of its [`Source`].
    pub source: &'static str,
    /// One line about it.
    pub title: &'static str,
    /// Under which terms it is published.
    pub licence: &'static str,
    /// What was opened.
    pub root: PathBuf,
    /// Its files, sorted by path.
    pub files: Vec<FileRead>,
    /// How its times are counted.
    pub clock: ClockRule,
    /// First and last time, in seconds of its clock: as the publication states them, else as the tables hold them.
    pub window: Option<(f64, f64)>,
    /// How many nodes or devices there were in all, where that is stated.
    pub population: Option<Population>,
    /// What was wrong with the input.
    pub problems: Problems,
    /// Rows a table.
    pub rows: BTreeMap<Table, u64>,
    /// The tables.
    pub tables: BTreeMap<Table, LazyFrame>,
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("source", &self.source)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl Dataset {
    /// Where one of its files lies.
    pub fn path_of(&self, file: &FileRead) -> PathBuf {
        match self.root.is_dir() {
            true => self.root.join(&file.path),
            false => self.root.clone(),
        }
    }

    /// A table as a lazy frame.
    pub fn frame(&self, table: Table) -> Option<LazyFrame> {
        self.tables.get(&table).cloned()
    }

    /// How many rows of a table have a number in a column.
    pub fn known(&self, table: Table, column: &str) -> Result<u64, Error> {
        let frame = self.column(table, column, DataType::Float64)?;
        let found = frame.column(column).map_err(refused(table, column))?;
        Ok((found.len() - found.null_count()) as u64)
    }

    /// A column of numbers in the order of the file.
    pub fn f64s(&self, table: Table, column: &str) -> Result<Vec<Option<f64>>, Error> {
        let frame = self.column(table, column, DataType::Float64)?;
        let found = frame.column(column).and_then(|found| found.f64());
        Ok(found.map_err(refused(table, column))?.iter().collect())
    }

    /// A column of texts in the order of the file. Numbers become text.
    pub fn strings(&self, table: Table, column: &str) -> Result<Vec<Option<String>>, Error> {
        let frame = self.column(table, column, DataType::String)?;
        let found = frame.column(column).and_then(|found| found.str());
        let found = found.map_err(refused(table, column))?.iter();
        Ok(found.map(|text| text.map(str::to_owned)).collect())
    }

    /// A column of texts in the order of the file, each different text once: what is grouped by needs no more.
    pub fn labels(&self, table: Table, column: &str) -> Result<Labels, Error> {
        let frame = self.column(table, column, DataType::String)?;
        let found = frame.column(column).and_then(|found| found.str());
        let found = found.map_err(refused(table, column))?;
        let mut numbers: PlHashMap<&str, u32> = PlHashMap::default();
        let mut labels = Labels {
            names: Vec::new(),
            of: Vec::with_capacity(found.len()),
        };
        for text in found.iter() {
            labels.of.push(text.map(|text| {
                *numbers.entry(text).or_insert_with(|| {
                    labels.names.push(text.to_owned());
                    labels.names.len() as u32 - 1
                })
            }));
        }
        Ok(labels)
    }

    fn column(&self, table: Table, column: &str, kind: DataType) -> Result<DataFrame, Error> {
        let frame = self.frame(table).ok_or(Error::NoTable {
            source_name: self.source,
            table: table.name(),
        })?;
        let frame = frame.select([col(column).strict_cast(kind)]).collect();
        frame.map_err(refused(table, column))
    }
}

fn refused(table: Table, column: &str) -> impl FnOnce(polars::error::PolarsError) -> Error {
    let column = column.to_owned();
    move |source| Error::Column {
        table: table.name(),
        column,
        source,
    }
}

/// Which source a folder or file is, by what it holds.
pub fn recognise(path: &Path) -> Option<&'static Source> {
    Some(choose(&heads(path).ok()?.0)?.0)
}

/// The source that claims the most files, and what each file is to it. Of equals the one that is listed first.
fn choose(heads: &[Head]) -> Option<(&'static Source, Vec<Option<&'static str>>)> {
    let mut best: Option<(&'static Source, Vec<Option<&'static str>>, usize)> = None;
    for source in sources() {
        let roles: Vec<_> = heads.iter().map(source.role).collect();
        let claimed: Vec<&Head> = heads
            .iter()
            .zip(&roles)
            .filter(|(_, role)| role.is_some())
            .map(|(head, _)| head)
            .collect();
        let more = claimed.len() > best.as_ref().map_or(0, |(_, _, count)| *count);
        if more && (source.sign)(&claimed) {
            let count = claimed.len();
            best = Some((source, roles, count));
        }
    }
    best.map(|(source, roles, _)| (source, roles))
}

/// Reads a folder or file that is known here.
pub fn open(path: &Path) -> Result<Dataset, Error> {
    let unreadable = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let (heads, more) = heads(path).map_err(unreadable)?;
    let Some((source, roles)) = choose(&heads) else {
        return Err(Error::Unknown { path: path.to_owned() });
    };
    let mut load = Load::new(path, source.population);
    for (head, role) in heads.iter().zip(roles) {
        read_file(source, head, role, &mut load);
    }
    load.whole_folder(more);
    (source.finish)(&mut load);
    assemble(source, load)
}

fn read_file(source: &Source, head: &Head, role: Option<&'static str>, load: &mut Load) {
    load.begin(file_read(head, role));
    if let Some(problem) = &head.unreadable {
        return load.cut_short(problem);
    }
    let Some(role) = role else {
        return;
    };
    match unpacked(&head.path) {
        Ok(reader) => (source.read)(role, head, &mut Input::new(reader), load),
        Err(problem) => return load.cut_short(&problem),
    }
    load.end();
}

/// A file of which nothing is read yet. Its digest is empty where it cannot be read.
pub(crate) fn file_read(head: &Head, role: Option<&'static str>) -> FileRead {
    let (sha256, bytes) = digest(&head.path).unwrap_or_default();
    FileRead {
        path: head.relative.clone(),
        role: role.unwrap_or(""),
        sha256,
        bytes,
        rows_read: 0,
        rows_skipped: 0,
    }
}

/// Makes frames of what was loaded.
pub(crate) fn assemble(source: &Source, load: Load) -> Result<Dataset, Error> {
    let spans = load.tables.iter().filter_map(|(table, rows)| rows.span(table.times()));
    let window = load.window.or_else(|| {
        spans
            .filter(|_| !load.no_window)
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    });
    let mut tables = BTreeMap::new();
    let mut rows = BTreeMap::new();
    for (table, built) in load.tables {
        rows.insert(table, built.len() as u64);
        let frame = built.into_frame().map_err(refused(table, "*"))?;
        tables.insert(table, frame.lazy());
    }
    Ok(Dataset {
        source: source.name,
        title: source.title,
        licence: source.licence,
        root: load.root,
        files: load.files,
        clock: ClockRule(source.clock.to_owned()),
        window,
        population: load.population,
        problems: load.problems,
        rows,
        tables,
    })
}
