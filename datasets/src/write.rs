//! Writing of tables: all as a folder of Parquet, or one as CSV, JSON lines or Parquet.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use polars::prelude::{AnyValue, DataFrame};

use crate::columnar;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::sources::imported::TableMetadata;
use crate::table::TableKind;

/// Output format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// RFC 4180 with a header, null as an empty field.
    Csv,
    /// One JSON object a line, null as null.
    Jsonl,
    /// Parquet of doubles and UTF-8 strings, compressed with Snappy.
    Parquet,
}

impl Dataset {
    /// Writes every table as `table=NAME/part-0.parquet` below a folder; returns the written paths. A table of an
    /// earlier import is replaced.
    pub fn import(&self, folder: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut written = Vec::new();
        for table in self.tables.keys() {
            let inside = folder.join(format!("table={}", table.name()));
            let path = inside.join("part-0.parquet");
            let refused = |what: String| Error::Write {
                path: path.clone(),
                what,
            };
            fs::create_dir_all(&inside).map_err(|problem| refused(problem.to_string()))?;
            // Written under a temporary name and renamed, so that readers find the old or the new file.
            let beside = inside.join(".part-0.parquet.new");
            let file = File::create(&beside).map_err(|problem| refused(problem.to_string()))?;
            columnar::write(&self.frame(*table)?, self.beside(), BufWriter::new(file)).map_err(refused)?;
            fs::rename(&beside, &path).map_err(|problem| refused(problem.to_string()))?;
            written.push(path);
        }
        Ok(written)
    }

    /// Writes one table.
    pub fn export(&self, table: TableKind, shape: OutputFormat, mut sink: impl Write + Send) -> Result<(), Error> {
        let frame = self.frame(table)?;
        let written = match shape {
            OutputFormat::Parquet => columnar::write(&frame, self.beside(), &mut sink),
            OutputFormat::Csv => csv(&frame, &mut sink),
            OutputFormat::Jsonl => jsonl(&frame, &mut sink),
        };
        let flushed = written.and_then(|()| sink.flush().map_err(|problem| problem.to_string()));
        flushed.map_err(|what| Error::Write {
            path: PathBuf::from(table.name()),
            what,
        })
    }

    /// Returns the metadata stored beside the rows of a table.
    fn beside(&self) -> String {
        let population = self.population.map(|all| (all.count, all.unit.to_owned()));
        let window = self.window;
        TableMetadata { population, window }.to_string()
    }
}

fn cells(frame: &DataFrame, row: usize) -> impl Iterator<Item = (&str, Option<AnyValue<'_>>)> {
    let columns = frame.columns().iter();
    columns.map(move |column| (column.name().as_str(), column.get(row).ok()))
}

fn csv(frame: &DataFrame, sink: impl Write) -> Result<(), String> {
    let mut writer = ::csv::Writer::from_writer(sink);
    let refused = |problem: ::csv::Error| problem.to_string();
    let names = frame.columns().iter().map(|column| column.name().as_str());
    writer.write_record(names).map_err(refused)?;
    for row in 0..frame.height() {
        for (_, cell) in cells(frame, row) {
            let written = match cell {
                Some(AnyValue::Float64(number)) => writer.write_field(number.to_string()),
                Some(AnyValue::String(text)) => writer.write_field(text),
                _ => writer.write_field(""),
            };
            written.map_err(refused)?;
        }
        writer.write_record(None::<&[u8]>).map_err(refused)?;
    }
    writer.flush().map_err(|problem| problem.to_string())
}

fn jsonl(frame: &DataFrame, mut sink: impl Write) -> Result<(), String> {
    for row in 0..frame.height() {
        let mut object = serde_json::Map::new();
        for (name, cell) in cells(frame, row) {
            let value = match cell {
                Some(AnyValue::Float64(number)) => serde_json::Value::from(number),
                Some(AnyValue::String(text)) => serde_json::Value::from(text),
                _ => serde_json::Value::Null,
            };
            object.insert(name.to_owned(), value);
        }
        let line = serde_json::to_string(&object).map_err(|problem| problem.to_string())?;
        writeln!(sink, "{line}").map_err(|problem| problem.to_string())?;
    }
    Ok(())
}
