//! Data set in memory: its tables, files, clock, population and problems.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use polars::prelude::{Column, DataFrame, DataType};

use crate::columns::TableColumns;
use crate::error::Error;
use crate::labels::LabelColumn;
use crate::load::LoadState;
use crate::problem::ProblemSummary;
use crate::provenance::{ClockRule, FileRead, Population};
use crate::source::SourceFormat;
use crate::table::TableKind;

/// Data set of one source, loaded into tables. Clones share the tables.
#[derive(Clone)]
pub struct Dataset {
    /// Name of the [`SourceFormat`] that recognised the files.
    pub source: &'static str,
    /// Title in one line.
    pub title: &'static str,
    /// Licence of the publication.
    pub licence: &'static str,
    /// Path that was opened.
    pub root: PathBuf,
    /// Files, sorted by path.
    pub files: Vec<FileRead>,
    /// Description of the times: unit, origin, time zone.
    pub clock: ClockRule,
    /// First and last time in seconds of the clock: from the publication, otherwise from the tables. `None` if there
    /// are no times, or if the files have no common origin of time.
    pub window: Option<(f64, f64)>,
    /// Total number of nodes or devices, if known.
    pub population: Option<Population>,
    /// Problems of the input by kind, with the rows lost to them.
    pub problems: ProblemSummary,
    /// Number of rows of each table.
    pub rows: BTreeMap<TableKind, u64>,
    /// Columns of each table.
    pub(crate) tables: BTreeMap<TableKind, Arc<TableColumns>>,
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
    /// Returns the path of a file of this data set: [`FileRead::path`] below the root.
    pub fn path_of(&self, file: &FileRead) -> PathBuf {
        if self.root.is_dir() {
            self.root.join(&file.path)
        } else {
            self.root.clone()
        }
    }

    /// Returns true if the table exists.
    pub fn has(&self, table: TableKind) -> bool {
        self.tables.contains_key(&table)
    }

    /// Returns a table as a frame of Polars. Returns an error if the data set lacks the table or it cannot be converted.
    pub fn frame(&self, table: TableKind) -> Result<DataFrame, Error> {
        self.table(table)?.frame().map_err(refused(table, "*"))
    }

    /// Returns the number of rows that have a number in a column; texts are parsed. Returns an error if the table or
    /// the column is missing, or if a text is no number.
    pub fn known(&self, table: TableKind, column: &str) -> Result<u64, Error> {
        if let Some(known) = self.table(table)?.known(column) {
            return Ok(known as u64);
        }
        let found = self.cast(table, column, &DataType::Float64)?;
        Ok((found.len() - found.null_count()) as u64)
    }

    /// Returns a column of numbers in file order, NaN if absent; texts are parsed. Returns an error if the table or the
    /// column is missing, or if a text is no number.
    pub fn numbers(&self, table: TableKind, column: &str) -> Result<Arc<Vec<f64>>, Error> {
        if let Some(numbers) = self.table(table)?.numbers(column) {
            return Ok(numbers);
        }
        let found = self.cast(table, column, &DataType::Float64)?;
        let found = found.f64().map_err(refused(table, column))?;
        Ok(Arc::new(
            found.iter().map(|number| number.unwrap_or(f64::NAN)).collect(),
        ))
    }

    /// Returns a column of numbers in file order, `None` if absent. Returns the errors of [`numbers`](Self::numbers).
    pub fn f64s(&self, table: TableKind, column: &str) -> Result<Vec<Option<f64>>, Error> {
        let numbers = self.numbers(table, column)?;
        let known = |number: &f64| Some(*number).filter(|number| !number.is_nan());
        Ok(numbers.iter().map(known).collect())
    }

    /// Returns a column of texts in file order, `None` if absent. Numbers are converted to text. Returns an error if
    /// the table or the column is missing.
    pub fn strings(&self, table: TableKind, column: &str) -> Result<Vec<Option<String>>, Error> {
        if let Some(strings) = self.table(table)?.strings(column) {
            return Ok(strings);
        }
        Ok(self
            .labels(table, column)?
            .texts()
            .map(|text| text.map(str::to_owned))
            .collect())
    }

    /// Returns a column of texts in file order with each distinct text stored once, for grouping. Numbers are converted
    /// to text. Returns an error if the table or the column is missing.
    pub fn labels(&self, table: TableKind, column: &str) -> Result<Arc<LabelColumn>, Error> {
        if let Some(labels) = self.table(table)?.labels(column) {
            return Ok(labels);
        }
        let found = self.cast(table, column, &DataType::String)?;
        let found = found.str().map_err(refused(table, column))?;
        Ok(Arc::new(found.iter().collect()))
    }

    fn table(&self, table: TableKind) -> Result<&TableColumns, Error> {
        let found = self.tables.get(&table).ok_or(Error::NoTable {
            source_name: self.source,
            table: table.name(),
        })?;
        Ok(found)
    }

    /// Casts a column to another type. Returns an error if the table or the column is missing, or if a value cannot be
    /// cast.
    fn cast(&self, table: TableKind, column: &str, kind: &DataType) -> Result<Column, Error> {
        let found = self.table(table)?.only(column);
        let cast = found.and_then(|found| found.strict_cast(kind));
        cast.map_err(refused(table, column))
    }
}

/// Returns a function that converts an error of Polars to one that names the table and the column.
pub(crate) fn refused(table: TableKind, column: &str) -> impl FnOnce(polars::error::PolarsError) -> Error {
    let column = column.to_owned();
    move |source| Error::Column {
        table: table.name(),
        column,
        source,
    }
}

/// Builds the data set from the state at the end of loading.
pub(crate) fn assemble(source: &SourceFormat, load: LoadState) -> Dataset {
    let tables: BTreeMap<TableKind, Arc<TableColumns>> = load
        .tables
        .into_iter()
        .map(|(table, rows)| (table, Arc::new(rows.into_columns())))
        .collect();
    let spans = tables.iter().filter_map(|(table, columns)| columns.span(table.times()));
    let window = load.window.or_else(|| {
        spans
            .filter(|_| !load.no_window)
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    });
    let rows = tables.iter().map(|(table, columns)| (*table, columns.rows() as u64));
    Dataset {
        source: source.name,
        title: source.title,
        licence: source.licence,
        root: load.root,
        files: load.files,
        clock: ClockRule(source.clock.to_owned()),
        window,
        population: load.population,
        problems: load.problems,
        rows: rows.collect(),
        tables,
    }
}
